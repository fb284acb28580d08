package checkpoint_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

func TestProgressNamesWhatIsWaitedFor(t *testing.T) {
	h := newHarness(t)
	require.Zero(t, h.c.Progress().Checkpoint)
	id := h.trigger()
	h.send(checkpoint.Ack{Checkpoint: id, Handle: handle(h.cfg.Tasks[0].ID)})
	p := h.c.Progress()
	require.Equal(t, id, p.Checkpoint)
	require.Equal(t, h.now, p.Since)
	require.Equal(t, []checkpoint.TaskID{{Vertex: "in", Subtask: 1}, {Vertex: "out"}, {Vertex: "out", Subtask: 1}}, p.Missing)
	h.ackAll(id)
	require.True(t, h.c.Progress().Writing)
	require.Empty(t, h.c.Progress().Missing)
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	require.True(t, h.c.Progress().Proposed)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: id})
	p = h.c.Progress()
	require.Equal(t, id, p.Uncommitted)
	require.Equal(t, []string{"w2"}, p.Workers)
	require.Equal(t, h.now, p.Completed)
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: id})
	require.Zero(t, h.c.Progress().Uncommitted)

	next := h.trigger()
	h.send(checkpoint.Decline{Checkpoint: next, Task: h.cfg.Tasks[0].ID, Reason: "disk full"})
	p = h.c.Progress()
	require.Equal(t, 1, p.Failures)
	require.Contains(t, p.Reason, "disk full")
}
