// Package sinktest is the suite that every transactional sink must pass. It drives the operator instance that a task drives, against
// the real system, and looks at the outcome from outside.
package sinktest

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// Output is one empty output to write integers to.
type Output struct {
	// Sink makes a sink for the output, as each process of a job does. Its transactions must outlive the checkpoint settings of
	// [Checkpoints].
	Sink func() sinks.Sink[int]
	// Read returns the visible integers, in order within a partition.
	Read func(ctx context.Context) ([]int, error)
	// Settled waits until no transaction is open on the output.
	Settled func(ctx context.Context) error
}

// Checkpoints are the settings that the suite runs with.
func Checkpoints() graph.CheckpointConfig {
	return graph.CheckpointConfig{
		Enabled: true, Interval: time.Second, Timeout: 5 * time.Second, ToleratedFailures: 1, Retained: 3, RecoveryBudget: 5 * time.Second,
	}
}

// limit bounds each test.
const limit = time.Minute

// Run runs the suite. newOutput makes an output for one test.
func Run(t *testing.T, newOutput func(t *testing.T) Output) {
	for name, test := range map[string]func(*suite){
		"visible only after the commit":                      (*suite).visibleAfterCommit,
		"a notice may be late, repeated or find nothing":     (*suite).repeatedNotices,
		"an empty interval stores nothing":                   (*suite).emptyInterval,
		"a completed checkpoint commits every earlier one":   (*suite).cumulative,
		"many checkpoints keep the order":                    (*suite).manyCheckpoints,
		"another process commits a restored transaction":     (*suite).resumed,
		"a committed transaction may be restored again":      (*suite).committedBeforeCrash,
		"two restores from one checkpoint":                   (*suite).restoredTwice,
		"what was not prepared is never visible":             (*suite).unprepared,
		"what was prepared later than the restore is ended":  (*suite).preparedAfterRestore,
		"close ends the current transaction only":            (*suite).closeKeepsPrepared,
		"a writer of a former attempt cannot disturb":        (*suite).zombie,
		"a change of parallelism ends all former subtasks":   (*suite).rescaled,
		"without transactions a flush makes records visible": (*suite).atLeastOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			test(&suite{t: t, ctx: ctx, out: newOutput(t), job: "job-" + time.Now().Format("150405.000000000")})
		})
	}
}

type suite struct {
	t   *testing.T
	ctx context.Context
	out Output
	job string
}

// attempt is one running instance.
type attempt struct {
	*suite
	instance  operator.Instance
	collector operator.Collector[int]
	committer operator.Committer
	runtime   *operator.Runtime
	closed    bool
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

// start opens an instance and recovers from the committables of a checkpoint, as a deployment does. Instances are closed at the end of
// the test: one that is not closed earlier stands for a crashed or frozen process.
func (s *suite) start(n uint64, guarantee graph.Guarantee, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) *attempt {
	return s.startAs(n, 0, 1, guarantee, restored, former...)
}

func (s *suite) startAs(n uint64, subtask, parallelism int, guarantee graph.Guarantee, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) *attempt {
	s.t.Helper()
	instance, err := s.out.Sink().NewInstance(guarantee)
	require.NoError(s.t, err)
	a := &attempt{suite: s, instance: instance}
	a.runtime = &operator.Runtime{
		ClusterID: "cluster", JobID: s.job, JobName: "job", Attempt: n, Operator: graph.Operator{UID: "out"},
		Subtask: subtask, Parallelism: parallelism, MaxParallelism: 128, Checkpoints: Checkpoints(), Clock: clock{},
		Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Dir: s.t.TempDir(),
		Fail: func(err error) { s.t.Errorf("the instance failed its task: %v", err) },
		Post: func(func() error) {},
	}
	s.t.Cleanup(a.drop)
	require.NoError(s.t, instance.Open(s.ctx, a.runtime))
	a.collector = instance.Input().(operator.Collector[int])
	if guarantee == graph.ExactlyOnce {
		a.committer = instance.(operator.Committer)
		require.NoError(s.t, a.committer.RecoverCommit(s.ctx, restored))
		require.NoError(s.t, a.committer.RecoverAbort(s.ctx, operator.Scope{Subtask: subtask, Parallelism: parallelism, Attempts: former}))
	}
	return a
}

// former describes an attempt of one subtask to its successor.
func former(n uint64) operator.FormerAttempt {
	return operator.FormerAttempt{Attempt: n, Parallelism: 1, Slots: Checkpoints().ToleratedFailures + 4}
}

func (a *attempt) drop() {
	if !a.closed {
		a.closed = true
		_ = a.instance.Close()
	}
}

func (a *attempt) close() {
	a.t.Helper()
	a.closed = true
	require.NoError(a.t, a.instance.Close())
}

func (a *attempt) write(values ...int) {
	a.t.Helper()
	for _, v := range values {
		require.NoError(a.t, a.collector.Collect(v, operator.NoTimestamp))
	}
}

// barrier takes a snapshot and returns its committables.
func (a *attempt) barrier(n uint64) []*snapshotv1.Committable {
	a.t.Helper()
	finish, err := a.instance.Snapshot(a.ctx, operator.Barrier{Checkpoint: n})
	require.NoError(a.t, err)
	if finish == nil {
		return nil
	}
	snapshot, err := finish(a.ctx)
	require.NoError(a.t, err)
	return snapshot.GetCommittables()
}

// commit tells that checkpoint n is complete and waits until the instance has committed it.
func (a *attempt) commit(n uint64) {
	a.t.Helper()
	done := make(chan error, 1)
	a.committer.Commit(n, func(err error) { done <- err })
	select {
	case err := <-done:
		require.NoError(a.t, err)
	case <-a.ctx.Done():
		require.FailNow(a.t, "the commit did not end")
	}
}

// visible checks what can be read once no transaction is open.
func (s *suite) visible(want ...int) {
	s.t.Helper()
	require.NoError(s.t, s.out.Settled(s.ctx))
	s.visibleNow(want...)
}

// visibleNow checks what can be read while transactions may be open.
func (s *suite) visibleNow(want ...int) {
	s.t.Helper()
	got, err := s.out.Read(s.ctx)
	require.NoError(s.t, err)
	slices.Sort(got)
	if len(want) == 0 {
		require.Empty(s.t, got)
		return
	}
	require.Equal(s.t, want, got)
}

func numbers(first, last int) []int {
	var out []int
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

func (s *suite) visibleAfterCommit() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.write(1, 2)
	require.Len(s.t, a.barrier(1), 1)
	s.visibleNow()
	a.commit(1)
	s.visible(1, 2)
}

func (s *suite) repeatedNotices() {
	a := s.start(1, graph.ExactlyOnce, nil)
	a.commit(0)
	a.write(1)
	a.barrier(1)
	a.commit(1)
	a.commit(1)
	a.write(2)
	a.barrier(2)
	a.commit(1)
	s.visibleNow(1)
	a.commit(2)
	a.commit(1)
	a.commit(2)
	s.visible(1, 2)
}

func (s *suite) emptyInterval() {
	a := s.start(1, graph.ExactlyOnce, nil)
	require.Empty(s.t, a.barrier(1))
	a.commit(1)
	a.write(1)
	require.Len(s.t, a.barrier(2), 1)
	require.Len(s.t, a.barrier(3), 1, "a transaction stays in the snapshots until its commit is confirmed")
	a.commit(3)
	require.Empty(s.t, a.barrier(4))
	a.commit(4)
	s.visible(1)
}

func (s *suite) cumulative() {
	a := s.start(1, graph.ExactlyOnce, nil)
	for n := 1; n <= 3; n++ {
		a.write(n)
		require.Len(s.t, a.barrier(uint64(n)), n)
	}
	a.write(4)
	a.commit(3)
	s.visibleNow(1, 2, 3)
	a.barrier(4)
	a.commit(4)
	s.visible(1, 2, 3, 4)
}

func (s *suite) manyCheckpoints() {
	a := s.start(1, graph.ExactlyOnce, nil)
	const rounds = 12
	for n := 1; n <= rounds; n++ {
		a.write(numbers(10*n, 10*n+9)...)
		a.barrier(uint64(n))
		a.commit(uint64(n))
	}
	require.NoError(s.t, s.out.Settled(s.ctx))
	got, err := s.out.Read(s.ctx)
	require.NoError(s.t, err)
	require.Equal(s.t, numbers(10, 10*rounds+9), got, "records of one partition keep their order over transactions")
}

func (s *suite) resumed() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1, 2, 3)
	committables := first.barrier(1)
	s.start(2, graph.ExactlyOnce, committables, former(1))
	s.visible(1, 2, 3)
}

func (s *suite) committedBeforeCrash() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	committables := first.barrier(1)
	first.commit(1)
	first.write(2) // open at the crash
	second := s.start(2, graph.ExactlyOnce, committables, former(1))
	second.write(2)
	second.barrier(2)
	second.commit(2)
	s.visible(1, 2)
}

func (s *suite) restoredTwice() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	committables := first.barrier(1)
	second := s.start(2, graph.ExactlyOnce, committables, former(1))
	second.write(2)
	second.barrier(2) // never completes
	third := s.start(3, graph.ExactlyOnce, committables, former(1), former(2))
	third.write(2)
	third.barrier(3)
	third.commit(3)
	s.visible(1, 2)
}

func (s *suite) unprepared() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	s.start(2, graph.ExactlyOnce, nil, former(1))
	s.visible()
}

func (s *suite) preparedAfterRestore() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	restored := first.barrier(1)
	first.write(2)
	first.barrier(2) // its acknowledgement is lost
	second := s.start(2, graph.ExactlyOnce, restored, former(1))
	s.visible(1)
	second.write(2)
	second.barrier(3)
	second.commit(3)
	s.visible(1, 2)
}

func (s *suite) closeKeepsPrepared() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	committables := first.barrier(1)
	first.write(2)
	first.close()
	s.visibleNow()
	s.start(2, graph.ExactlyOnce, committables, former(1))
	s.visible(1)
}

func (s *suite) zombie() {
	first := s.start(1, graph.ExactlyOnce, nil)
	first.write(1)
	committables := first.barrier(1)
	first.write(2)
	second := s.start(2, graph.ExactlyOnce, committables, former(1))
	second.write(2)
	// The former attempt wakes: it may write, prepare and commit as it likes. Errors are welcome, effects are not.
	_ = first.collector.Collect(3, operator.NoTimestamp)
	if finish, err := first.instance.Snapshot(s.ctx, operator.Barrier{Checkpoint: 2}); err == nil && finish != nil {
		_, _ = finish(s.ctx)
	}
	done := make(chan error, 1)
	first.committer.Commit(2, func(err error) { done <- err })
	first.drop()
	<-done
	second.barrier(3)
	second.commit(3)
	s.visible(1, 2)
}

func (s *suite) rescaled() {
	var committables []*snapshotv1.Committable
	for subtask := range 3 {
		a := s.startAs(1, subtask, 3, graph.ExactlyOnce, nil)
		a.write(10 * (subtask + 1))
		committables = append(committables, a.barrier(1)...)
		a.write(10*(subtask+1) + 1)
	}
	past := former(1)
	past.Parallelism = 3
	for subtask := range 2 {
		var share []*snapshotv1.Committable
		for i, c := range committables {
			if i%2 == subtask {
				share = append(share, c)
			}
		}
		s.startAs(2, subtask, 2, graph.ExactlyOnce, share, past)
	}
	s.visible(10, 20, 30)
}

func (s *suite) atLeastOnce() {
	a := s.start(1, graph.AtLeastOnce, nil)
	a.write(1, 2)
	a.barrier(1)
	s.visible(1, 2)
	a.write(3)
	require.NoError(s.t, a.instance.EndInput())
	s.visible(1, 2, 3)
	a.close()
}
