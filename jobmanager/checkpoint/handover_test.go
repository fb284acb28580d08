package checkpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

func TestHandoverComesAfterTheCommitOfItsCheckpoint(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestHandover{}, checkpoint.RequestHandover{})
	h.expect(checkpoint.Trigger{Checkpoint: 11}) // at once, although idle
	h.commit(11)
	h.ignore()
	h.send(checkpoint.RequestHandover{}, checkpoint.CommitAcked{Worker: "w1", Checkpoint: 11})
	h.expect()
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: 11})
	h.expect(checkpoint.Settle{Checkpoint: 11}, checkpoint.Handover{Checkpoint: 11})
}

func TestHandoverDoesNotTakeACheckpointThatIsUnderWay(t *testing.T) {
	h := newHarness(t)
	regular := h.trigger()
	h.send(checkpoint.RequestHandover{})
	h.expect()
	h.commit(regular)
	require.Equal(t, regular+1, take[checkpoint.Trigger](h).Checkpoint)
	h.ignore()
	h.acked(regular)
	none[checkpoint.Handover](h)
	h.commit(regular + 1)
	h.acked(regular + 1)
	require.Equal(t, regular+1, take[checkpoint.Handover](h).Checkpoint)
}

func TestFailedHandoverIsAnsweredAndNotCounted(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.ToleratedFailures = 0 })
	h.send(checkpoint.RequestHandover{})
	h.send(checkpoint.Decline{Checkpoint: 11, Task: checkpoint.TaskID{Vertex: "in"}, Reason: "disk full"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}, checkpoint.Abort{Checkpoint: 11}, checkpoint.HandoverFailed{
		Reason: "checkpoint 11: in[0] could not store its snapshot: disk full",
	})
	h.send(checkpoint.RequestHandover{})
	require.Equal(t, uint64(12), take[checkpoint.Trigger](h).Checkpoint)
}

func TestInterruptedHandoverIsTakenAgain(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.RequestHandover{}, checkpoint.Interrupted{Reason: "session broke"})
	h.expect(checkpoint.Trigger{Checkpoint: 11}, checkpoint.Abort{Checkpoint: 11}, checkpoint.Trigger{Checkpoint: 12})
	h.commit(12)
	h.acked(12)
	require.Equal(t, uint64(12), take[checkpoint.Handover](h).Checkpoint)
}

func TestSavepointOfTheSameCheckpointIsExportedBeforeTheHandover(t *testing.T) {
	h := newHarness(t)
	regular := h.trigger()
	h.send(checkpoint.RequestSavepoint{RequestID: "p"}, checkpoint.RequestHandover{})
	h.commit(regular)
	h.ignore()
	h.commit(regular + 1)
	h.ignore()
	h.acked(regular + 1)
	h.expect(checkpoint.Settle{Checkpoint: regular + 1},
		checkpoint.Export{Checkpoint: regular + 1, RequestIDs: []string{"p"}}, checkpoint.Handover{Checkpoint: regular + 1})
}

func TestNoHandoverOfAJobThatEnds(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.InputEnded{Worker: "w1"}, checkpoint.InputEnded{Worker: "w2"})
	h.ackAllEnded(11)
	h.send(checkpoint.MetadataWritten{Checkpoint: 11, Metadata: metadata(11)}, checkpoint.Decided{Checkpoint: 11, Outcome: checkpoint.Committed})
	h.ignore()
	h.send(checkpoint.RequestHandover{})
	take[checkpoint.HandoverFailed](h)
	h.acked(11)
	none[checkpoint.Handover](h)
}
