package checkpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

func TestUnusedFilesOfFailedCheckpointsAreDiscarded(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[0].ID, file(id, "mine"), file(9, "older"))})
	h.send(checkpoint.Decline{Checkpoint: id, Reason: "x"})
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[1].ID, file(id, "late"))})
	none[checkpoint.Discard](h)
	next := h.trigger()
	h.commit(next, file(next, "a"))
	require.Equal(t, []string{"mine-11", "late-11"}, take[checkpoint.Discard](h).Files)
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[2].ID, file(id, "very late"))})
	require.Equal(t, []string{"very late-11"}, take[checkpoint.Discard](h).Files)
	h.ackAll(next, file(next, "a"))
	none[checkpoint.Discard](h)
}

func TestUnusedMetadataIsDiscarded(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.propose(id)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: "x"})
	next := h.trigger()
	h.commit(next)
	require.Equal(t, []string{metadata(id).GetName()}, take[checkpoint.Discard](h).Files)
}

func TestCheckpointMustNotNeedUnprotectedFiles(t *testing.T) {
	h := newHarness(t, func(c *checkpoint.Config) { c.Retained = 1 })
	first := h.trigger()
	h.commit(first, file(first, "a"))
	h.acked(first)
	second := h.trigger()
	h.commit(second, file(first, "a"), file(second, "b"))
	h.acked(second)
	third := h.trigger()
	h.commit(third, file(second, "b"), file(10, "restored"))
	fourth := h.trigger()
	h.ignore()
	h.ackAll(fourth, file(first, "a"))
	none[checkpoint.WriteMetadata](h)
	take[checkpoint.Abort](h)
	require.Contains(t, h.statistics()[0].GetFailure(), "it needs a-11, which no retained checkpoint protects")
	h.commit(h.trigger(), file(second, "b"))
}

func TestSpilledSnapshotIsAFile(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	for i, task := range h.cfg.Tasks {
		a := handle(task.ID)
		if i == 0 {
			a.Snapshot, a.Spilled = nil, &snapshotv1.Segment{Name: "spilled", Size: 1000, Checkpoint: id}
		}
		h.send(checkpoint.Ack{Checkpoint: id, Handle: a})
	}
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	require.Equal(t, uint64(1015), take[checkpoint.Propose](h).Completed.GetTotalBytes())
}
