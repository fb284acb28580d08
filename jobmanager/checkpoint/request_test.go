package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

const (
	goesOn   = jobv1.JobState_JOB_STATE_UNSPECIFIED
	stopped  = jobv1.JobState_JOB_STATE_STOPPED
	finished = jobv1.JobState_JOB_STATE_FINISHED
)

func TestInputThatEndedFinishesTheJob(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.InputEnded{Worker: "w1"})
	h.expect()
	h.send(checkpoint.InputEnded{Worker: "w1"}, checkpoint.InputEnded{Worker: "w2"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}) // without waiting for the interval
	h.ackAllEnded(11)
	take[checkpoint.WriteMetadata](h)
	h.send(checkpoint.MetadataWritten{Checkpoint: 11, Metadata: metadata(11)})
	p := take[checkpoint.Propose](h)
	require.True(t, p.Completed.GetFinal())
	require.Equal(t, finished, p.Target)
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	h.send(checkpoint.Activity{Since: 100})
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: 11})
	h.expect()
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: 11})
	h.expect(checkpoint.Settle{Checkpoint: 11}, checkpoint.Finish{Checkpoint: 11})
	h.pass(time.Hour)
	h.expect()
}

func TestCheckpointIsFinalOnlyWhenEveryTaskHasEnded(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	for i, task := range h.cfg.Tasks {
		a := handle(task.ID)
		a.Ended = i != 3
		h.send(checkpoint.Ack{Checkpoint: id, Handle: a})
	}
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	p := take[checkpoint.Propose](h)
	require.False(t, p.Completed.GetFinal())
	require.Equal(t, goesOn, p.Target)
}

func TestInputEndsWhileACheckpointRuns(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.Periodic = false })
	h.send(checkpoint.RequestSavepoint{RequestID: "p"})
	h.send(checkpoint.InputEnded{Worker: "w1"}, checkpoint.InputEnded{Worker: "w2"})
	h.ignore()
	h.commit(11)
	h.acked(11)
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint)
	h.send(checkpoint.Decline{Checkpoint: 12, Reason: "x"})
	h.pass(time.Second)
	require.Equal(t, uint64(13), take[checkpoint.Trigger](h).Checkpoint, "tried again after a failure")
	h.commit(13)
	h.pass(time.Second)
	require.Equal(t, uint64(14), take[checkpoint.Trigger](h).Checkpoint, "and until every task has ended")
}

func TestSavepointIsExportedOnceCommitted(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.RequestSavepoint{RequestID: "p"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}) // at once, although idle
	require.True(t, h.statistics()[0].GetSavepoint())
	p := h.propose(11)
	require.True(t, p.Completed.GetPinned())
	require.Equal(t, goesOn, p.Target)
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed}, checkpoint.RequestSavepoint{RequestID: "p"})
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	h.acked(11)
	h.expect(checkpoint.Settle{Checkpoint: 11}, checkpoint.Export{Checkpoint: 11, RequestIDs: []string{"p"}})
}

func TestSavepointRequestsShareACheckpoint(t *testing.T) {
	h := newHarness(t)
	regular := h.trigger()
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.RequestSavepoint{RequestID: "q"})
	h.expect() // the one in flight may have passed what the user wants to be in it
	h.commit(regular)
	require.Equal(t, regular+1, take[checkpoint.Trigger](h).Checkpoint)
	h.commit(regular + 1)
	h.acked(regular + 1)
	require.Equal(t, []string{"p", "q"}, take[checkpoint.Export](h).RequestIDs)
}

func TestSavepointFailsWithItsCheckpointAndIsNotCounted(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	h.send(checkpoint.RequestSavepoint{RequestID: "p"})
	h.send(checkpoint.Decline{Checkpoint: 11, Task: checkpoint.TaskID{Vertex: "in"}, Reason: "disk full"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}, checkpoint.Abort{Checkpoint: 11}, checkpoint.SavepointFailed{
		RequestID: "p", Reason: "checkpoint 11: in[0] could not store its snapshot: disk full",
	})
	h.send(checkpoint.RequestSavepoint{RequestID: "p"})
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint, "it may be asked for again")
}

func TestInterruptedSavepointIsTakenAgain(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.Interrupted{Reason: "session broke"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}, checkpoint.Abort{Checkpoint: 11}, checkpoint.Trigger{Checkpoint: 12})
	h.commit(12)
	h.acked(12)
	require.Equal(t, []string{"p"}, take[checkpoint.Export](h).RequestIDs)
}

func TestStopIsCommittedBeforeTheWorkersClose(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.expect(checkpoint.Trigger{Checkpoint: 11, Stop: true})
	p := h.propose(11)
	require.True(t, p.Completed.GetStop())
	require.False(t, p.Completed.GetPinned())
	require.Equal(t, stopped, p.Target)
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.ignore()
	h.pass(500 * time.Millisecond)
	h.expect()
	h.acked(11)
	h.expect(checkpoint.Settle{Checkpoint: 11}, checkpoint.Finish{Checkpoint: 11})
}

func TestStopGoesBeforeFinish(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.ackAllEnded(11)
	h.send(checkpoint.MetadataWritten{Checkpoint: 11, Metadata: metadata(11)})
	require.Equal(t, stopped, take[checkpoint.Propose](h).Target)
}

func TestStopReplacesACheckpointThatStillCollects(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	id := h.trigger()
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.expect(checkpoint.Abort{Checkpoint: id}, checkpoint.Trigger{Checkpoint: id + 1, Stop: true})
}

func TestStopServesTheSavepointsThatItReplaces(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.ignore()
	h.commit(12)
	h.acked(12)
	require.Equal(t, checkpoint.Export{Checkpoint: 12, RequestIDs: []string{"p"}, StopID: "s"}, take[checkpoint.Export](h))
}

func TestStopWaitsForACheckpointUnderDecision(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.expect()
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.True(t, take[checkpoint.Trigger](h).Stop)
}

func TestSecondStop(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.expect()
	h.send(checkpoint.RequestStop{RequestID: "other"})
	h.expect(checkpoint.StopFailed{RequestID: "other", Reason: "the job is already stopping"})
	h.commit(11)
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.expect()
}

func TestStopOfAFinishingJob(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.ackAllEnded(id)
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	h.send(checkpoint.RequestStop{RequestID: "s"}, checkpoint.RequestSavepoint{RequestID: "p"})
	h.ignore()
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.Equal(t, "s", take[checkpoint.StopFailed](h).RequestID)
	require.Equal(t, "p", take[checkpoint.SavepointFailed](h).RequestID)
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "late"}, checkpoint.RequestSavepoint{RequestID: "late"})
	take[checkpoint.StopFailed](h)
	take[checkpoint.SavepointFailed](h)
	h.send(checkpoint.StopCancelled{})
	none[checkpoint.Resume](h)
	h.acked(id)
	take[checkpoint.Finish](h)
}

func TestFailedStopLetsTheJobGoOn(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.ignore()
	h.send(checkpoint.Decline{Checkpoint: 11, Task: checkpoint.TaskID{Vertex: "in"}, Reason: "x"})
	h.expect(checkpoint.Abort{Checkpoint: 11}, checkpoint.Resume{},
		checkpoint.StopFailed{RequestID: "s", Reason: "checkpoint 11: in[0] could not store its snapshot: x"})
	require.Equal(t, uint64(12), h.trigger())
}

func TestStopWithSavepointWaitsForTheDriver(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.ignore()
	p := h.propose(11)
	require.True(t, p.Completed.GetPinned())
	require.True(t, p.Completed.GetStop())
	require.Equal(t, goesOn, p.Target)
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.acked(11)
	require.Equal(t, checkpoint.Export{Checkpoint: 11, StopID: "s"}, take[checkpoint.Export](h))
	h.ignore()
	h.send(checkpoint.Activity{Since: 100})
	h.pass(time.Minute)
	h.expect() // nothing while the sources are paused

	h.send(checkpoint.StopCancelled{})
	h.expect(checkpoint.Resume{}, checkpoint.Trigger{Checkpoint: 12})
}

func TestStopWithSavepointOfInputThatHasEnded(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.ackAllEnded(11)
	h.send(checkpoint.MetadataWritten{Checkpoint: 11, Metadata: metadata(11)})
	require.Equal(t, goesOn, take[checkpoint.Propose](h).Target)
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.acked(11)
	take[checkpoint.Export](h)
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.pass(time.Second)
	h.expect(checkpoint.Resume{}, checkpoint.Trigger{Checkpoint: 12}) // which finishes the job
}

func TestStopCancelledBeforeItsTrigger(t *testing.T) {
	h := newHarness(t)
	h.propose(h.trigger())
	h.send(checkpoint.RequestStop{RequestID: "s"}, checkpoint.StopCancelled{})
	h.expect()
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	none[checkpoint.Trigger](h)
}

func TestStopCancelledWhileItCollects(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.expect(checkpoint.Abort{Checkpoint: 11}, checkpoint.Resume{})
	h.send(checkpoint.RequestStop{RequestID: "s2"})
	h.expect(checkpoint.Trigger{Checkpoint: 12, Stop: true})
}

func TestStopCancelledWhileItIsDecided(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.propose(11)
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.expect(checkpoint.Resume{})
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.expect(checkpoint.Unpin{Checkpoint: 11}, checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	require.Equal(t, uint64(12), h.trigger())
}

func TestStopCancelledTooLate(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.propose(11)
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.expect()
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.acked(11)
	take[checkpoint.Finish](h)
}

func TestStopCancelledBeforeItsExport(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.commit(12)
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.expect(checkpoint.Resume{})
	h.acked(12)
	require.Equal(t, checkpoint.Export{Checkpoint: 12, RequestIDs: []string{"p"}}, take[checkpoint.Export](h))

	h.send(checkpoint.RequestStop{RequestID: "s2", Savepoint: true})
	h.commit(13)
	h.ignore()
	h.send(checkpoint.StopCancelled{})
	h.expect(checkpoint.Resume{}, checkpoint.Unpin{Checkpoint: 13})
}

func TestInterruptedStopIsTakenAgain(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s"}, checkpoint.Interrupted{Reason: "session broke"})
	h.expect(checkpoint.Trigger{Checkpoint: 11, Stop: true}, checkpoint.Abort{Checkpoint: 11},
		checkpoint.Trigger{Checkpoint: 12, Stop: true})
}

func TestEndOfTheAttemptAnswersItsRequests(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "completed"})
	h.commit(11)
	h.send(checkpoint.RequestSavepoint{RequestID: "running"}, checkpoint.RequestSavepoint{RequestID: "waiting"})
	h.ignore()
	h.send(checkpoint.AttemptEnded{Reason: "worker died"})
	const why = "the attempt ended: worker died"
	h.expect(
		checkpoint.Unpin{Checkpoint: 11},
		checkpoint.SavepointFailed{RequestID: "running", Reason: why},
		checkpoint.SavepointFailed{RequestID: "waiting", Reason: why},
		checkpoint.SavepointFailed{RequestID: "completed", Reason: why},
	)
	require.Equal(t, why, h.statistics()[0].GetFailure())
	h.send(checkpoint.RequestSavepoint{RequestID: "late"})
	take[checkpoint.SavepointFailed](h)
	h.ackAll(12)
	h.send(checkpoint.Activity{Since: 99}, checkpoint.RequestStop{RequestID: "s"}, checkpoint.AttemptEnded{})
	h.pass(time.Hour)
	h.expect()
}

func TestEndOfTheAttemptLeavesAStopToTheNext(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestStop{RequestID: "s", Savepoint: true})
	h.commit(11)
	h.ignore()
	h.send(checkpoint.AttemptEnded{Reason: "worker died"})
	h.expect(checkpoint.Unpin{Checkpoint: 11})
}

func TestPinDecidedAfterTheEndIsUndone(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestSavepoint{RequestID: "p"})
	h.propose(11)
	h.send(checkpoint.AttemptEnded{Reason: "worker died"})
	h.ignore()
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Unknown})
	h.expect()
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.expect(checkpoint.Unpin{Checkpoint: 11})
	h.send(checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.expect()
}
