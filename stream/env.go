package stream

import (
	"time"

	"github.com/weir-stream/weir/graph"
)

// Env collects the operators and settings of a job. It is used by one goroutine, inside the job function.
type Env struct {
	name           string
	parallelism    int
	maxParallelism int
	checkpoints    graph.CheckpointConfig
	restarts       graph.RestartPolicy
	nodes          []*node
	edges          []*edge
}

// CheckpointConfig holds the checkpoint settings of a job.
type CheckpointConfig = graph.CheckpointConfig

// RestartPolicy bounds the automatic restarts of a job.
type RestartPolicy = graph.RestartPolicy

// Guarantee is the delivery guarantee of a sink.
type Guarantee = graph.Guarantee

// The guarantees of a sink.
const (
	// None may lose and repeat records after a failure.
	None = graph.None
	// AtLeastOnce loses nothing and may repeat records after a failure.
	AtLeastOnce = graph.AtLeastOnce
	// ExactlyOnce neither loses nor repeats.
	ExactlyOnce = graph.ExactlyOnce
)

// DefaultCheckpoints returns the checkpoint settings of a job that chooses none: on, every second.
func DefaultCheckpoints() CheckpointConfig {
	return CheckpointConfig{
		Enabled: true, Interval: time.Second, Timeout: time.Minute, ToleratedFailures: 3, Retained: 3,
		RecoveryBudget: 2 * time.Minute,
	}
}

// DefaultRestarts returns the restart policy of a job that chooses none: at most 10 restarts in 10 minutes, the first at once, then
// after 1 s, doubling up to 1 min.
func DefaultRestarts() RestartPolicy {
	return RestartPolicy{
		InitialDelay: time.Second, MaxDelay: time.Minute, Multiplier: 2, MaxRestarts: 10, Window: 10 * time.Minute,
	}
}

func newEnv() *Env {
	return &Env{checkpoints: DefaultCheckpoints(), restarts: DefaultRestarts()}
}

// SetName names the job. The default is the name of the program; a name given at submit takes precedence.
func (e *Env) SetName(name string) { e.name = name }

// SetParallelism sets the number of subtasks of operators that choose none. The default is 1; a parallelism given at submit takes
// precedence.
func (e *Env) SetParallelism(n int) { e.parallelism = n }

// SetMaxParallelism sets the number of key groups, the upper bound of every parallelism, 128 by default and at most 32768. It cannot
// change while the job has state.
func (e *Env) SetMaxParallelism(n int) { e.maxParallelism = n }

// SetCheckpoints replaces the checkpoint settings. Begin with [DefaultCheckpoints] to change some of them.
func (e *Env) SetCheckpoints(c CheckpointConfig) { e.checkpoints = c }

// SetCheckpointInterval sets the time between the starts of two checkpoints, and so how soon exactly-once output is visible.
func (e *Env) SetCheckpointInterval(d time.Duration) { e.checkpoints.Interval = d }

// DisableCheckpoints switches checkpoints off. After a failure the job begins anew.
func (e *Env) DisableCheckpoints() { e.checkpoints.Enabled = false }

// SetRestartPolicy replaces the restart policy. Begin with [DefaultRestarts] to change some of it.
func (e *Env) SetRestartPolicy(p RestartPolicy) { e.restarts = p }
