package driver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

func TestAStopThatFailsAsTheLeadershipEndsHasAnUnknownOutcome(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (lost, applied bool) {
			return cmd.GetClearStop() != nil, cmd.GetClearStop() == nil
		}
		f.log.barrier = func(context.Context) error { return raftnode.ErrNotLeader }
	})
	answer := make(chan error, 1)
	go func() { answer <- f.manager.Stop(t.Context(), jobID, "stop", "") }()
	f.waitFor("trigger 2")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{
		Checkpoint: 2, Vertex: "v", Reason: "storage is full",
	}}})
	select {
	case err := <-answer:
		require.ErrorIs(t, err, grpcerr.ErrUnknownOutcome, "the next leader may take the stop up again")
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the stop is not answered")
	}
}

// outcomeUnknownOnce makes the first entry that matches get into the log although nobody is told.
func (f *fixture) outcomeUnknownOnce(matches func(*raftv1.Command) bool) {
	var once sync.Once
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (lost, applied bool) {
			if matches(cmd) {
				once.Do(func() { lost = true })
			}
			return lost, true
		}
	})
}

// TestAJobEndsThoughItsEntryWasRepeated: the driver proposes the end a second time, and the log says that it knows it already.
func TestAJobEndsThoughItsEntryWasRepeated(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.outcomeUnknownOnce(func(cmd *raftv1.Command) bool { return cmd.GetEndJob() != nil })
	require.NoError(t, f.manager.Cancel(t.Context(), jobID, "cancel"))
	f.waitFor("kill 1")
}

// TestAStopBeginsThoughItsEntryWasRepeated is the same for a stop, which begins with a checkpoint.
func TestAStopBeginsThoughItsEntryWasRepeated(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.outcomeUnknownOnce(func(cmd *raftv1.Command) bool { return cmd.GetRequestStop() != nil })
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- f.manager.Stop(ctx, jobID, "stop", "") }()
	f.waitFor("trigger 2")
	cancel()
	require.Error(t, <-answer, "the caller has gone")
}
