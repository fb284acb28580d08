package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/statebackend"
)

// requireExact checks that the output of n records is there, each row once.
func requireExact(t *testing.T, w *world, n int64) {
	t.Helper()
	require.Empty(t, w.wrongs)
	var want []string
	counts := make(map[int64]int)
	for v := range n {
		k := v % keys
		counts[k]++
		want = append(want, fmt.Sprintf("%d:%d", k, counts[k]))
	}
	seen := make(map[string]int)
	for _, row := range w.output() {
		seen[row]++
	}
	var lost, doubled []string
	for _, row := range want {
		switch seen[row] {
		case 1:
		case 0:
			lost = append(lost, row)
		default:
			doubled = append(doubled, row)
		}
		delete(seen, row)
	}
	require.Emptyf(t, lost[:min(5, len(lost))], "%d rows lost", len(lost))
	require.Emptyf(t, doubled[:min(5, len(doubled))], "%d rows doubled", len(doubled))
	require.Emptyf(t, seen, "%d rows that should not be", len(seen))
}

var shapes = []struct {
	name string
	shape
}{
	{"one worker", shape{1, 2, 3}},
	{"two workers", shape{2, 2, 3}},
}

func TestRunToTheEnd(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			const n = 20_000
			w := newWorld(3)
			c := newCluster(t, w)
			var mu sync.Mutex
			ends, marks := 0, map[int]int64{}
			c.hooks.end = func(int) { mu.Lock(); ends++; mu.Unlock() }
			c.hooks.watermark = func(sub int, wm int64) {
				mu.Lock()
				defer mu.Unlock()
				require.Greater(t, wm, marks[sub]-1)
				marks[sub] = wm
			}
			w.feed(0, n)
			a := c.deploy(s.shape, nil)
			a.wait(-1, func(e *workerv1.Event) bool { return e.GetActivity() != nil })
			a.trigger(1, false)
			a.handles(1)
			a.complete(1)
			w.end()
			ended := 0
			for i := range a.workers {
				a.wait(i, func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() })
			}
			var handles []*snapshotv1.TaskHandle
			for n := uint64(2); ended < a.tasks; n++ {
				a.trigger(n, false)
				ended, handles = 0, a.handles(n)
				for _, h := range handles {
					if h.GetEnded() {
						ended++
					}
				}
				a.complete(n)
			}
			a.finish()
			requireExact(t, w, n)
			require.Empty(t, w.open())
			require.Equal(t, s.counters, ends)
		})
	}
}

// TestExactlyOnceAcrossFailures takes checkpoints of which some complete, some do not, and stops the attempt hard in between, with
// other numbers of workers and subtasks each time.
func TestExactlyOnceAcrossFailures(t *testing.T) {
	w := newWorld(4)
	c := newCluster(t, w)
	var restore *workerv1.RestorePoint
	n, fed := uint64(0), int64(0)
	rounds := []shape{{1, 1, 1}, {2, 2, 2}, {2, 2, 2}, {3, 4, 3}, {1, 1, 2}, {2, 3, 5}}
	for i, s := range rounds {
		c.old = i%2 == 1
		a := c.deploy(s, restore)
		for range 3 {
			w.feed(fed, fed+3000)
			fed += 3000
			n++
			a.trigger(n, false)
			handles := a.handles(n)
			switch n % 3 {
			case 0: // Every task has acknowledged, and nobody got to know.
				continue
			case 1:
				restore = point(t, n, handles)
				a.complete(n)
			default: // Complete, with nobody told before the crash.
				restore = point(t, n, handles)
			}
		}
		if i%2 == 0 {
			w.feed(fed, fed+100)
			fed += 100
		}
		a.cancel()
	}
	w.end()
	a := c.deploy(shape{2, 2, 3}, restore)
	for i := range a.workers {
		a.wait(i, func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() })
	}
	for ended := false; !ended; {
		n++
		a.trigger(n, false)
		ended = true
		for _, h := range a.handles(n) {
			ended = ended && h.GetEnded()
		}
		a.complete(n)
	}
	a.finish()
	requireExact(t, w, fed)
	require.Empty(t, w.open())
}

func TestAbortAndHigherCheckpoint(t *testing.T) {
	w := newWorld(2)
	c := newCluster(t, w)
	a := c.deploy(shape{2, 2, 2}, nil)
	w.feed(0, 100)
	// Checkpoint 1 reaches one source only; the counters wait for the other one.
	a.workers[0].Do(&workerv1.Command{Command: &workerv1.Command_TriggerCheckpoint{TriggerCheckpoint: &workerv1.TriggerCheckpoint{Checkpoint: 1}}})
	a.wait(0, func(e *workerv1.Event) bool { return e.GetCheckpointAck().GetCheckpoint() == 1 })
	a.do(&workerv1.Command{Command: &workerv1.Command_AbortCheckpoint{AbortCheckpoint: &workerv1.AbortCheckpoint{Checkpoint: 1}}})
	// Checkpoint 2 the same without an abort; 3 overtakes it.
	a.workers[1].Do(&workerv1.Command{Command: &workerv1.Command_TriggerCheckpoint{TriggerCheckpoint: &workerv1.TriggerCheckpoint{Checkpoint: 2}}})
	a.wait(1, func(e *workerv1.Event) bool { return e.GetCheckpointAck().GetCheckpoint() == 2 })
	w.feed(100, 200)
	a.trigger(3, false)
	a.handles(3)
	a.complete(3)
	require.Zero(t, a.count(func(e *workerv1.Event) bool {
		ack := e.GetCheckpointAck()
		return ack != nil && ack.GetCheckpoint() < 3 && ack.GetHandle().GetVertex() == "count"
	}))
	w.feed(200, 300)
	w.end()
	for i := range a.workers {
		a.wait(i, func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() })
	}
	a.trigger(4, false)
	a.handles(4)
	a.complete(4)
	a.finish()
	requireExact(t, w, 300)
}

func TestStopAndResume(t *testing.T) {
	w := newWorld(2)
	c := newCluster(t, w)
	a := c.deploy(shape{1, 2, 2}, nil)
	w.feed(0, 100)
	a.read(100)
	a.trigger(1, true)
	a.handles(1)
	a.complete(1)
	w.feed(100, 200)
	w.end()
	a.trigger(2, true)
	a.handles(2)
	a.complete(2)
	requireExact(t, w, 100)
	require.Zero(t, a.count(func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() }))

	a.do(&workerv1.Command{Command: &workerv1.Command_ResumeSources{ResumeSources: &workerv1.ResumeSources{}}})
	a.wait(0, func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() })
	a.trigger(3, true)
	a.handles(3)
	a.complete(3)
	a.finish()
	requireExact(t, w, 200)
}

func TestPanicIsReported(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	c.hooks.record = func(*counter, record) error { panic("cannot count this") }
	a := c.deploy(shape{1, 1, 1}, nil)
	w.feed(0, 1)
	f := a.failure()
	require.Equal(t, "count", f.GetVertex())
	require.Contains(t, f.GetMessage(), "cannot count this")
	require.Contains(t, f.GetMessage(), "count → sink")
	require.Contains(t, f.GetStack(), "world_test.go")
	require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_RESTART, f.GetClass())
	a.do(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
	require.ErrorContains(t, a.workers[0].Wait(), "cannot count this")
}

func TestLostWorkerFailsTheOther(t *testing.T) {
	w := newWorld(2)
	c := newCluster(t, w)
	a := c.deploy(shape{2, 2, 2}, nil)
	a.workers[0].Close()
	f := a.wait(1, func(e *workerv1.Event) bool { return e.GetTaskFailed() != nil }).GetTaskFailed()
	require.Contains(t, f.GetMessage(), "127.0.0.1:")
	require.Contains(t, f.GetMessage(), "src→count")
	require.True(t, f.GetConsequence())
	require.Equal(t, 1, a.count(func(e *workerv1.Event) bool { return e.GetTaskFailed() != nil }), "one failure is told, the first")
	a.cancel()
}

func TestStorageErrorDeclines(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	var broken atomic.Bool
	broken.Store(true)
	c.hooks.finish = func(context.Context, *snapshotv1.OperatorState) error {
		if broken.Load() {
			return fmt.Errorf("write segment: %w", &statebackend.StorageError{Op: "upload", Err: errors.New("disk full")})
		}
		return nil
	}
	a := c.deploy(shape{1, 1, 1}, nil)
	w.feed(0, 10)
	a.trigger(1, false)
	d := a.wait(0, func(e *workerv1.Event) bool { return e.GetCheckpointDeclined() != nil }).GetCheckpointDeclined()
	require.Equal(t, uint64(1), d.GetCheckpoint())
	require.Equal(t, "count", d.GetVertex())
	require.Contains(t, d.GetReason(), "disk full")
	broken.Store(false)
	w.feed(10, 20)
	a.read(20)
	a.trigger(2, false)
	a.handles(2)
	a.complete(2)
	a.finish()
	requireExact(t, w, 20)
}

func TestLargeSnapshotIsSpilled(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	c.hooks.finish = func(_ context.Context, st *snapshotv1.OperatorState) error {
		st.Entries = append(st.Entries, &snapshotv1.OperatorStateEntry{Key: "99", Value: make([]byte, 2<<20)})
		return nil
	}
	a := c.deploy(shape{1, 1, 1}, nil)
	w.feed(0, 50)
	a.read(50)
	a.trigger(1, false)
	handles := a.handles(1)
	spilled := 0
	for _, h := range handles {
		if h.GetSpilled() != nil {
			spilled++
			require.Empty(t, h.GetSnapshot())
			require.Equal(t, "cluster/jobs/job/state/1/count-0/_task/1-0", h.GetSpilled().GetName())
			require.Len(t, h.GetFiles(), 1)
		}
	}
	require.Equal(t, 1, spilled)
	restore := point(t, 1, handles)
	a.cancel()
	w.end()
	a = c.deploy(shape{1, 1, 1}, restore)
	a.wait(0, func(e *workerv1.Event) bool { return e.GetActivity().GetEnded() })
	a.trigger(2, false)
	a.handles(2)
	a.complete(2)
	a.finish()
	requireExact(t, w, 50)
}

func TestSettleOnly(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	s := shape{1, 1, 2}
	a := c.deploy(s, nil)
	w.feed(0, 100)
	a.read(100)
	a.trigger(1, false)
	restore := point(t, 1, a.handles(1))
	w.feed(100, 200)
	a.read(200)
	a.trigger(2, false)
	a.handles(2)
	a.cancel()
	require.NotEmpty(t, w.open())

	c.hooks.open = func(context.Context) error { return errors.New("only sinks are opened") }
	a = c.prepare(s, restore, func(p *workerv1.Prepare) { p.SettleOnly = true })
	c.start(a, s)
	require.Positive(t, a.wait(0, func(e *workerv1.Event) bool { return e.GetPrepared() != nil }).GetPrepared().GetCommitted())
	a.finish()
	requireExact(t, w, 100)
	require.Empty(t, w.open())
}

func TestSettledRestorePointCommitsNothing(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	a := c.deploy(shape{1, 1, 1}, nil)
	w.feed(0, 10)
	a.read(10)
	a.trigger(1, false)
	restore := point(t, 1, a.handles(1))
	a.complete(1)
	a.cancel()
	restore.Settled = true
	w.ended = map[string]string{} // a broker that has forgotten
	a = c.deploy(shape{1, 1, 1}, restore)
	require.Zero(t, a.wait(0, func(e *workerv1.Event) bool { return e.GetPrepared() != nil }).GetPrepared().GetCommitted())
	require.Len(t, w.output(), 10)
	a.cancel()
}

func TestPrepareRefusals(t *testing.T) {
	w := newWorld(1)
	for _, tc := range []struct {
		name  string
		edit  func(*workerv1.Prepare)
		says  string
		class workerv1.FailureClass
	}{
		{"another plan", func(p *workerv1.Prepare) { p.Fingerprint = "other" }, "differs from the submitted one", workerv1.FailureClass_FAILURE_CLASS_FATAL},
		{"unknown task", func(p *workerv1.Prepare) { p.Tasks[0].Vertex = "nowhere" }, "no task nowhere[0]", workerv1.FailureClass_FAILURE_CLASS_FATAL},
		{"dropped state", func(p *workerv1.Prepare) {
			p.Restore = point(t, 3, []*snapshotv1.TaskHandle{taskHandle(t, "gone", &snapshotv1.OperatorSnapshot{
				Uid: "gone", OperatorStates: []*snapshotv1.OperatorState{{Entries: []*snapshotv1.OperatorStateEntry{{Key: "k"}}}},
			})})
		}, "operators gone", workerv1.FailureClass_FAILURE_CLASS_FATAL},
		{"damaged restore point", func(p *workerv1.Prepare) {
			p.Restore = point(t, 3, nil)
			p.Restore.Metadata.Inline[12] ^= 1
		}, "is damaged", workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, w)
			a := c.prepare(shape{1, 1, 1}, nil, tc.edit)
			f := a.failure()
			require.Contains(t, f.GetMessage(), tc.says)
			require.Equal(t, tc.class, f.GetClass())
		})
	}
}

func TestCancelDuringPrepare(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	opening := make(chan struct{})
	c.hooks.open = func(ctx context.Context) error {
		close(opening)
		<-ctx.Done()
		return ctx.Err()
	}
	a := c.prepare(shape{1, 1, 1}, nil, nil)
	<-opening
	a.cancel()
	require.Zero(t, a.count(func(e *workerv1.Event) bool { return e.GetTaskFailed() != nil }))
}

// TestCancelOfAStuckTask checks that a task that does not return is given up and named.
func TestCancelOfAStuckTask(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	entered, release := make(chan struct{}), make(chan struct{})
	c.hooks.record = func(*counter, record) error {
		close(entered)
		<-release
		return errors.New("released")
	}
	a := c.deploy(shape{1, 1, 1}, nil)
	w.feed(0, 1)
	<-entered
	began := time.Now()
	a.workers[0].Do(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
	require.ErrorContains(t, a.workers[0].Wait(), "count[0]")
	require.Less(t, time.Since(began), 8*time.Second)
	close(release)
}

func TestActivityOncePerCheckpoint(t *testing.T) {
	w := newWorld(2)
	c := newCluster(t, w)
	a := c.deploy(shape{1, 2, 2}, nil)
	activity := func(since uint64) func(*workerv1.Event) bool {
		return func(e *workerv1.Event) bool {
			return e.GetActivity() != nil && e.GetActivity().GetSinceCheckpoint() == since && !e.GetActivity().GetEnded()
		}
	}
	w.feed(0, 10)
	a.wait(0, activity(0))
	a.read(10)
	a.trigger(1, false)
	a.handles(1)
	a.complete(1)
	require.Zero(t, a.count(activity(1)), "nothing has happened since")
	w.feed(10, 20)
	a.wait(0, activity(1))
	require.Equal(t, 1, a.count(activity(0)))
	require.Equal(t, 1, a.count(activity(1)))
	a.cancel()
}

// TestCancelOfAStuckOpen checks that an operator is not closed by somebody else while it opens.
func TestCancelOfAStuckOpen(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	opening, release := make(chan struct{}), make(chan struct{})
	c.hooks.open = func(context.Context) error {
		close(opening)
		<-release
		return nil
	}
	a := c.prepare(shape{1, 1, 1}, nil, nil)
	<-opening
	a.do(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
	require.ErrorContains(t, a.workers[0].Wait(), "count[0]")
	close(release)
}

// TestCommitIsAcknowledgedByAll holds back the commit of one of two sinks.
func TestCommitIsAcknowledgedByAll(t *testing.T) {
	w := newWorld(1)
	c := newCluster(t, w)
	release := make(chan struct{})
	first := make(chan struct{}, 10)
	c.hooks.commit = func(subtask int) {
		if subtask == 1 {
			<-release
		} else {
			first <- struct{}{}
		}
	}
	a := c.deploy(shape{1, 1, 2}, nil)
	w.feed(0, 100)
	a.read(100)
	a.trigger(1, false)
	a.handles(1)
	complete := &workerv1.Command{Command: &workerv1.Command_CompleteCheckpoint{CompleteCheckpoint: &workerv1.CompleteCheckpoint{Checkpoint: 1}}}
	a.do(complete)
	<-first
	// Records flow on beside the commit, and so would an acknowledgement.
	w.feed(100, 200)
	a.read(200)
	require.Zero(t, a.count(func(e *workerv1.Event) bool { return e.GetCommitAcked() != nil }))
	close(release)
	a.wait(0, func(e *workerv1.Event) bool { return e.GetCommitAcked().GetCheckpoint() == 1 })
	// A repeated notice is answered again.
	a.do(complete)
	a.trigger(2, false)
	a.handles(2)
	a.complete(2)
	require.Eventually(t, func() bool {
		return a.count(func(e *workerv1.Event) bool { return e.GetCommitAcked().GetCheckpoint() == 1 }) == 2
	}, patience, time.Millisecond)
	a.finish()
	requireExact(t, w, 200)
}
