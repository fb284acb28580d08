package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

func TestTimeoutNamesTheSlowTasks(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(checkpoint.TaskID{Vertex: "in"})})
	h.pass(time.Minute - time.Millisecond)
	h.expect()
	h.pass(time.Millisecond)
	h.expect(checkpoint.Abort{Checkpoint: id}, checkpoint.Trigger{Checkpoint: id + 1})
	require.Equal(t, "timed out after 1m0s waiting for 3 of 4 tasks: in[1], out[0], out[1]", h.statistics()[1].GetFailure())
}

func TestSlowTasksAreNotAllListed(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) {
		c.Tasks = nil
		for i := range uint32(8) {
			c.Tasks = append(c.Tasks, checkpoint.Task{ID: checkpoint.TaskID{Vertex: "v", Subtask: i}, Source: true, Worker: "w1"})
		}
	})
	h.trigger()
	h.pass(time.Minute)
	require.Contains(t, h.statistics()[1].GetFailure(), "waiting for 8 of 8 tasks: v[0], v[1], v[2], v[3], v[4] and 3 more")
}

func TestTimeoutCoversTheMetadata(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.ackAll(id)
	h.pass(time.Minute)
	take[checkpoint.Abort](h)
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	none[checkpoint.Propose](h)
}

func TestProposedCheckpointHasNoTimeout(t *testing.T) {
	h := newHarness(t)
	h.propose(h.trigger())
	h.pass(time.Hour)
	h.expect()
}

func TestUnknownOutcomeNeitherNotifiesNorDiscards(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id, file(id, "a"))
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Unknown, Reason: "leadership lost"})
	h.pass(time.Hour)
	h.send(checkpoint.Interrupted{Reason: "x"})
	h.expect()
	require.Equal(t, []string{"the log to tell whether the checkpoint is completed"}, h.statistics()[0].GetWaitingFor())
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	require.Equal(t, id, take[checkpoint.Notify](h).Checkpoint)
	none[checkpoint.Discard](h)
}

func TestRejectedCheckpointIsNeverNotified(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: "missing origin"})
	h.expect(checkpoint.Abort{Checkpoint: id})
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	h.expect()
	require.Contains(t, h.statistics()[0].GetFailure(), "missing origin")
}

func TestLateAndForeignAcksAreIgnored(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"})
	h.ignore()
	h.ackAll(id)
	h.expect()
	next := h.trigger()
	h.ackAll(id)
	h.ackAll(next + 1)
	h.send(checkpoint.Ack{Checkpoint: next, Handle: handle(checkpoint.TaskID{Vertex: "other"})})
	for range 4 {
		h.send(checkpoint.Ack{Checkpoint: next, Handle: handle(checkpoint.TaskID{Vertex: "in"})})
	}
	h.send(checkpoint.Ack{Checkpoint: next})
	h.expect()
	require.Len(t, h.statistics()[0].GetWaitingFor(), 3)
}

func TestLateDeclineIsIgnored(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.ackAll(id)
	h.ignore()
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"}, checkpoint.Decline{Checkpoint: id - 1, Reason: "x"})
	h.send(checkpoint.MetadataFailed{Checkpoint: id - 1, Reason: "x"})
	h.expect()
}

func TestAnswersToNothingAreIgnored(t *testing.T) {
	h := newHarness(t)
	h.send(
		checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed}, checkpoint.MetadataWritten{Checkpoint: 11},
		checkpoint.MetadataFailed{Checkpoint: 11}, checkpoint.Decline{Checkpoint: 11}, checkpoint.StopCancelled{},
		checkpoint.Interrupted{}, checkpoint.CommitAcked{Worker: "w1", Checkpoint: 99}, checkpoint.InputEnded{Worker: "nobody"},
	)
	h.expect()
}

func TestToleratedFailuresThenTheAttemptFails(t *testing.T) {
	h := newHarness(t)
	for range 3 {
		h.send(checkpoint.Decline{Checkpoint: h.trigger(), Task: checkpoint.TaskID{Vertex: "out", Subtask: 1}, Reason: "disk full"})
		none[checkpoint.FailAttempt](h)
	}
	h.ignore()
	id := h.trigger()
	h.send(checkpoint.Decline{Checkpoint: id, Task: checkpoint.TaskID{Vertex: "out", Subtask: 1}, Reason: "disk full"})
	h.expect(checkpoint.Abort{Checkpoint: id}, checkpoint.FailAttempt{Storage: true, Reason: "4 checkpoints failed in a row, 3 are " +
		"tolerated; the last one was checkpoint 14: out[1] could not store its snapshot: disk full"})
	_, ok := h.c.Deadline()
	require.False(t, ok)
	h.send(checkpoint.Activity{Since: 100})
	h.expect()
}

func TestFailuresMustBeConsecutive(t *testing.T) {
	h := newHarness(t)
	for range 3 {
		for range 3 {
			h.send(checkpoint.MetadataFailed{Checkpoint: h.trigger(), Reason: "not asked for"})
			h.send(checkpoint.Decline{Checkpoint: h.statistics()[0].GetId(), Reason: "disk full"})
		}
		id := h.trigger()
		h.commit(id)
		h.acked(id)
	}
	none[checkpoint.FailAttempt](h)
}

func TestFailureIsStorageOnlyWhenAllWere(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 1 })
	id := h.trigger()
	h.pass(time.Minute)
	h.ignore()
	h.ackAll(id + 1)
	h.send(checkpoint.MetadataFailed{Checkpoint: id + 1, Reason: "disk full"})
	f := take[checkpoint.FailAttempt](h)
	require.False(t, f.Storage)
	require.Contains(t, f.Reason, "metadata could not be written: disk full")
}

func TestNoFailureTolerated(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	h.send(checkpoint.Decline{Checkpoint: h.trigger(), Task: checkpoint.TaskID{Vertex: "in"}, Reason: "x"})
	require.Equal(t, "checkpoint 11: in[0] could not store its snapshot: x", take[checkpoint.FailAttempt](h).Reason)
}

func TestInterruptionsAreNotCounted(t *testing.T) {
	h := newHarness(t)
	for range 10 {
		id := h.trigger()
		h.send(checkpoint.Interrupted{Reason: "session broke"})
		require.Equal(t, id, take[checkpoint.Abort](h).Checkpoint)
	}
	none[checkpoint.FailAttempt](h)
	require.Equal(t, "session broke", h.statistics()[0].GetFailure())
}
