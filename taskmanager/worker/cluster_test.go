package worker_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// dirStore keeps segments in a directory.
type dirStore struct{ dir string }

func (s dirStore) Upload(_ context.Context, local, name string, _ uint64, _ uint32) error {
	to := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.Rename(local, to)
}

func (s dirStore) Fetch(_ context.Context, seg *snapshotv1.Segment) (string, error) {
	return filepath.Join(s.dir, seg.GetName()), nil
}

// cluster plays the JobManager for some workers.
type cluster struct {
	t     *testing.T
	world *world
	hooks *hooks
	store dirStore

	attempt uint64
	fence   []*workerv1.FencedAttempt
	// old makes the leader one that lists addresses by task only.
	old bool
}

func newCluster(t *testing.T, w *world) *cluster {
	return &cluster{t: t, world: w, hooks: &hooks{}, store: dirStore{t.TempDir()}}
}

// attempt is one deployed attempt.
type attempt struct {
	t       *testing.T
	workers []*worker.Worker
	program *operator.Program
	tasks   int

	mu      sync.Mutex
	events  [][]*workerv1.Event // by worker
	changed chan struct{}
}

// shape is how an attempt is laid out.
type shape struct{ workers, sources, counters int }

func (c *cluster) prepare(s shape, restore *workerv1.RestorePoint, edit func(*workerv1.Prepare)) *attempt {
	c.attempt++
	a := &attempt{t: c.t, changed: make(chan struct{}), program: program(c.world, c.hooks, s.sources, s.counters), events: make([][]*workerv1.Event, s.workers)}
	assignments := make([][]*workerv1.TaskAssignment, s.workers)
	for _, v := range a.program.Graph.Vertices {
		for i := range v.Parallelism {
			w := i % s.workers
			assignments[w] = append(assignments[w], &workerv1.TaskAssignment{Vertex: v.ID, Subtask: uint32(i)})
			a.tasks++
		}
	}
	for i := range s.workers {
		w := worker.New(worker.Config{
			Plan:   func(int) (*operator.Program, error) { return program(c.world, c.hooks, s.sources, s.counters), nil },
			Store:  c.store,
			Dir:    c.t.TempDir(),
			Report: func(e *workerv1.Event) { a.take(i, e) },
		})
		c.t.Cleanup(w.Close)
		a.workers = append(a.workers, w)
		p := &workerv1.Prepare{
			ClusterId: "cluster", JobId: "job", JobName: "test", Attempt: c.attempt, Fingerprint: a.program.Graph.Fingerprint,
			Tasks: assignments[i], Restore: restore, Token: "secret", BindHost: "127.0.0.1", AdvertiseHost: "127.0.0.1",
		}
		if edit != nil {
			edit(p)
		}
		w.Do(&workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: p}})
	}
	return a
}

// start waits until all are prepared, starts them and waits again.
func (c *cluster) start(a *attempt, s shape) {
	start := &workerv1.Start{Fence: c.fence}
	for i := range a.workers {
		p := a.wait(i, func(e *workerv1.Event) bool { return e.GetPrepared() != nil }).GetPrepared()
		at := &workerv1.WorkerAddress{Address: p.GetDataAddress()}
		for _, v := range a.program.Graph.Vertices {
			for sub := range v.Parallelism {
				if sub%s.workers != i {
					continue
				}
				if c.old {
					start.Addresses = append(start.Addresses, &workerv1.TaskAddress{Vertex: v.ID, Subtask: uint32(sub), Address: p.GetDataAddress()})
				} else if !slices.Contains(at.Slots, uint32(sub)) {
					at.Slots = append(at.Slots, uint32(sub))
				}
			}
		}
		if !c.old {
			start.Workers = append(start.Workers, at)
		}
	}
	a.do(&workerv1.Command{Command: &workerv1.Command_Start{Start: start}})
	for i := range a.workers {
		a.wait(i, func(e *workerv1.Event) bool { return e.GetStarted() != nil })
	}
	c.fence = []*workerv1.FencedAttempt{{
		Attempt: c.attempt, Sinks: []*workerv1.SinkExtent{{Uid: "sink", Parallelism: uint32(s.counters), Slots: 4}},
	}}
}

func (c *cluster) deploy(s shape, restore *workerv1.RestorePoint) *attempt {
	a := c.prepare(s, restore, nil)
	c.start(a, s)
	return a
}

func (a *attempt) take(worker int, e *workerv1.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.events[worker] = append(a.events[worker], e)
	close(a.changed)
	a.changed = make(chan struct{})
}

// wait waits for an event of a worker, or of any when worker is -1.
func (a *attempt) wait(worker int, match func(*workerv1.Event) bool) *workerv1.Event {
	a.t.Helper()
	deadline := time.After(patience)
	for {
		a.mu.Lock()
		changed := a.changed
		for i, events := range a.events {
			if worker >= 0 && i != worker {
				continue
			}
			for _, e := range events {
				if match(e) {
					a.mu.Unlock()
					return e
				}
			}
		}
		events := a.events
		a.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			require.Fail(a.t, "no such event", "worker %d: %v", worker, events)
		}
	}
}

// has reports whether a matching event has come.
func (a *attempt) count(match func(*workerv1.Event) bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, events := range a.events {
		for _, e := range events {
			if match(e) {
				n++
			}
		}
	}
	return n
}

func (a *attempt) do(cmd *workerv1.Command) {
	for _, w := range a.workers {
		w.Do(cmd)
	}
}

func (a *attempt) trigger(n uint64, stop bool) {
	a.do(&workerv1.Command{Command: &workerv1.Command_TriggerCheckpoint{TriggerCheckpoint: &workerv1.TriggerCheckpoint{Checkpoint: n, Stop: stop}}})
}

// handles waits until all tasks have acknowledged.
func (a *attempt) handles(n uint64) []*snapshotv1.TaskHandle {
	a.t.Helper()
	deadline := time.After(patience)
	for {
		var handles []*snapshotv1.TaskHandle
		a.mu.Lock()
		changed := a.changed
		for _, events := range a.events {
			for _, e := range events {
				if ack := e.GetCheckpointAck(); ack.GetCheckpoint() == n && ack != nil {
					handles = append(handles, ack.GetHandle())
				}
			}
		}
		a.mu.Unlock()
		if len(handles) == a.tasks {
			return handles
		}
		select {
		case <-changed:
		case <-deadline:
			require.Fail(a.t, "checkpoint not acknowledged", "%d: %d of %d", n, len(handles), a.tasks)
		}
	}
}

// complete tells that n is complete and waits for the commits.
func (a *attempt) complete(n uint64) {
	a.t.Helper()
	a.do(&workerv1.Command{Command: &workerv1.Command_CompleteCheckpoint{CompleteCheckpoint: &workerv1.CompleteCheckpoint{Checkpoint: n}}})
	for i := range a.workers {
		a.wait(i, func(e *workerv1.Event) bool { return e.GetCommitAcked().GetCheckpoint() >= n })
	}
}

func (a *attempt) finish() {
	a.t.Helper()
	a.do(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}})
	for i, w := range a.workers {
		require.NoError(a.t, w.Wait())
		a.wait(i, func(e *workerv1.Event) bool { return e.GetClosed() != nil })
	}
}

func (a *attempt) cancel() {
	a.t.Helper()
	a.do(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
	for _, w := range a.workers {
		require.NoError(a.t, w.Wait())
	}
}

// point makes a restore point of the handles of a checkpoint.
func point(t *testing.T, n uint64, handles []*snapshotv1.TaskHandle) *workerv1.RestorePoint {
	sort.Slice(handles, func(i, j int) bool { return handles[i].GetSubtask() < handles[j].GetSubtask() })
	data, err := checkpointfile.Encode(&snapshotv1.CheckpointMetadata{
		FormatVersion: checkpointfile.FormatVersion, Checkpoint: n, MaxParallelism: 128, Tasks: handles,
	})
	require.NoError(t, err)
	return &workerv1.RestorePoint{Checkpoint: n, Metadata: &snapshotv1.Segment{Inline: data}}
}

// failure waits for a worker's failure.
func (a *attempt) failure() *workerv1.TaskFailed {
	a.t.Helper()
	return a.wait(-1, func(e *workerv1.Event) bool { return e.GetTaskFailed() != nil }).GetTaskFailed()
}

// read waits until the sources have emitted n records in all.
func (a *attempt) read(n uint64) {
	a.t.Helper()
	a.wait(-1, func(*workerv1.Event) bool {
		var sum uint64
		for _, events := range a.events {
			for i := len(events) - 1; i >= 0; i-- {
				if s := events[i].GetStatistics(); s != nil {
					for _, task := range s.GetTasks() {
						if task.GetVertex() == "count" {
							sum += task.GetRecordsIn()
						}
					}
					break
				}
			}
		}
		return sum >= n
	})
}

func taskHandle(t *testing.T, vertex string, ops ...*snapshotv1.OperatorSnapshot) *snapshotv1.TaskHandle {
	data, err := proto.Marshal(&snapshotv1.TaskSnapshot{Vertex: vertex, Parallelism: 1, Operators: ops})
	require.NoError(t, err)
	return &snapshotv1.TaskHandle{Vertex: vertex, Snapshot: data}
}
