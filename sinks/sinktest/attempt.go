package sinktest

import (
	"cmp"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// Deployment places one subtask of a sink.
type Deployment struct {
	Job                  string
	UID                  string // of the sink in the job; empty for "out"
	Attempt              uint64
	Subtask, Parallelism int
	Guarantee            graph.Guarantee
	Checkpoints          graph.CheckpointConfig
	Logger               *slog.Logger // nil discards
	// Restored are the committables of the restored checkpoint; Former the attempts to fence.
	Restored []*snapshotv1.Committable
	Former   []operator.FormerAttempt
	// SettleOnly makes it one that writes no records.
	SettleOnly bool
}

// Former describes an attempt of one subtask with the settings of [Checkpoints] to its successor.
func Former(n uint64) operator.FormerAttempt {
	return operator.FormerAttempt{Attempt: n, Parallelism: 1, Slots: Checkpoints().ToleratedFailures + 4}
}

// Attempt is a running instance of a sink, driven as a task drives it.
type Attempt[T any] struct {
	Instance  operator.Instance
	Collector operator.Collector[T]
	Stats     *operator.Stats
	t         testing.TB
	ctx       context.Context
	closed    bool
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

// Open opens an instance without recovering anything.
func Open[T any](t testing.TB, ctx context.Context, sink sinks.Sink[T], d Deployment) (*Attempt[T], error) {
	t.Helper()
	instance, err := sink.NewInstance(d.Guarantee)
	if err != nil {
		return nil, err
	}
	a := &Attempt[T]{Instance: instance, Stats: &operator.Stats{}, t: t, ctx: ctx}
	logger := d.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	t.Cleanup(a.Drop)
	a.Collector = instance.Input().(operator.Collector[T])
	uid := cmp.Or(d.UID, "out")
	return a, instance.Open(ctx, &operator.Runtime{
		ClusterID: "cluster", JobID: d.Job, JobName: "job", Attempt: d.Attempt, Operator: graph.Operator{UID: uid},
		Subtask: d.Subtask, Parallelism: d.Parallelism, MaxParallelism: 128, Checkpoints: d.Checkpoints, SettleOnly: d.SettleOnly, Clock: clock{},
		Logger: logger, Stats: a.Stats, Dir: t.TempDir(), Restored: []*snapshotv1.OperatorSnapshot{{Uid: uid, Committables: d.Restored}},
		Fail: func(err error) { t.Errorf("the instance failed its task: %v", err) },
		Post: func(func() error) {},
	})
}

// Start opens an instance and recovers, as both phases of a deployment do. The instance is closed at the end of the test.
func Start[T any](t testing.TB, ctx context.Context, sink sinks.Sink[T], d Deployment) *Attempt[T] {
	t.Helper()
	a, err := Open[T](t, ctx, sink, d)
	require.NoError(t, err)
	if c, ok := a.Instance.(operator.Committer); ok {
		require.NoError(t, c.RecoverCommit(ctx, d.Restored))
		require.NoError(t, c.RecoverAbort(ctx, operator.Scope{Subtask: d.Subtask, Parallelism: d.Parallelism, Attempts: d.Former}))
	}
	return a
}

// Drop closes the instance whatever comes of it.
func (a *Attempt[T]) Drop() {
	if !a.closed {
		a.closed = true
		_ = a.Instance.Close()
	}
}

// Close closes the instance.
func (a *Attempt[T]) Close() {
	a.t.Helper()
	a.closed = true
	require.NoError(a.t, a.Instance.Close())
}

// Write writes records without timestamps.
func (a *Attempt[T]) Write(values ...T) {
	a.t.Helper()
	for _, v := range values {
		require.NoError(a.t, a.Collector.Collect(v, operator.NoTimestamp))
	}
}

// Barrier takes a snapshot and returns its committables.
func (a *Attempt[T]) Barrier(n uint64) []*snapshotv1.Committable {
	a.t.Helper()
	cs, err := a.TryBarrier(n)
	require.NoError(a.t, err)
	return cs
}

// TryBarrier is Barrier for those that may fail.
func (a *Attempt[T]) TryBarrier(n uint64) ([]*snapshotv1.Committable, error) {
	finish, err := a.Instance.Snapshot(a.ctx, operator.Barrier{Checkpoint: n})
	if err != nil || finish == nil {
		return nil, err
	}
	snapshot, err := finish(a.ctx)
	return snapshot.GetCommittables(), err
}

// Notify tells that checkpoint n is complete.
func (a *Attempt[T]) Notify(n uint64, done chan<- error) {
	a.Instance.(operator.Committer).Commit(n, func(err error) { done <- err })
}

// Commit tells that checkpoint n is complete and waits until it is committed.
func (a *Attempt[T]) Commit(n uint64) {
	a.t.Helper()
	require.NoError(a.t, a.TryCommit(n))
}

// TryCommit is Commit for those that may fail.
func (a *Attempt[T]) TryCommit(n uint64) error {
	done := make(chan error, 1)
	a.Notify(n, done)
	select {
	case err := <-done:
		return err
	case <-a.ctx.Done():
		return a.ctx.Err()
	}
}
