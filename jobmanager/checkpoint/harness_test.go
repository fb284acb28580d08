package checkpoint_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

var epoch = time.UnixMilli(1_800_000_000_000)

// harness is a driver that only keeps what the coordinator asks for.
type harness struct {
	t       *testing.T
	c       *checkpoint.Coordinator
	cfg     checkpoint.Config
	now     time.Time
	effects []checkpoint.Effect // not looked at yet
}

// testConfig has two workers: w1 with in[0] and out[0], w2 with in[1] and out[1].
func testConfig() checkpoint.Config {
	return checkpoint.Config{
		ClusterID: "c", JobID: "j", Attempt: 3, Fingerprint: "f", MaxParallelism: 128,
		Tasks: []checkpoint.Task{
			{ID: checkpoint.TaskID{Vertex: "in"}, Source: true, Worker: "w1"},
			{ID: checkpoint.TaskID{Vertex: "in", Subtask: 1}, Source: true, Worker: "w2"},
			{ID: checkpoint.TaskID{Vertex: "out"}, Worker: "w1"},
			{ID: checkpoint.TaskID{Vertex: "out", Subtask: 1}, Worker: "w2"},
		},
		Periodic: true, Interval: time.Second, Timeout: time.Minute, ToleratedFailures: 3, Retained: 3,
		FirstID: 11, Limit: 1000, Restored: 10,
	}
}

func newHarness(t *testing.T, change ...func(*checkpoint.Config)) *harness {
	h := &harness{t: t, cfg: testConfig(), now: epoch}
	for _, f := range change {
		f(&h.cfg)
	}
	h.c, h.effects = checkpoint.New(h.cfg, h.now)
	return h
}

func (h *harness) send(events ...checkpoint.Event) {
	for _, ev := range events {
		h.effects = append(h.effects, h.c.Handle(h.now, ev)...)
	}
}

// pass lets time go by, with a tick at each deadline.
func (h *harness) pass(d time.Duration) {
	h.t.Helper()
	end := h.now.Add(d)
	for range 1000 {
		at, ok := h.c.Deadline()
		if !ok || at.After(end) {
			h.now = end
			return
		}
		require.True(h.t, at.After(h.now), "a deadline that has passed")
		h.now = at
		h.send(checkpoint.Tick{})
	}
	h.t.Fatal("too many deadlines")
}

// expect compares the effects since the last call.
func (h *harness) expect(want ...checkpoint.Effect) {
	h.t.Helper()
	got := h.effects
	h.effects = nil
	if len(want) == 0 {
		require.Empty(h.t, got)
		return
	}
	require.Equal(h.t, want, got)
}

func (h *harness) ignore() { h.effects = nil }

// take removes and returns the only effect of a type.
func take[E checkpoint.Effect](h *harness) E {
	h.t.Helper()
	is := func(e checkpoint.Effect) bool { _, ok := e.(E); return ok }
	i := slices.IndexFunc(h.effects, is)
	require.GreaterOrEqual(h.t, i, 0, "no %T among %v", *new(E), h.effects)
	e := h.effects[i].(E)
	h.effects = slices.Delete(h.effects, i, i+1)
	require.False(h.t, slices.ContainsFunc(h.effects, is), "another %T", e)
	return e
}

func none[E checkpoint.Effect](h *harness) {
	h.t.Helper()
	for _, e := range h.effects {
		_, is := e.(E)
		require.False(h.t, is, "unexpected %T %v", e, e)
	}
}

func handle(t checkpoint.TaskID, files ...*snapshotv1.FileReference) *snapshotv1.TaskHandle {
	return &snapshotv1.TaskHandle{Vertex: t.Vertex, Subtask: t.Subtask, Snapshot: []byte("12345"), Committables: 1, Files: files}
}

func file(checkpoint uint64, name string) *snapshotv1.FileReference {
	return &snapshotv1.FileReference{Name: fmt.Sprintf("%s-%d", name, checkpoint), Size: 100, Checkpoint: checkpoint}
}

// ackAll acknowledges with the given files in the first task's snapshot.
func (h *harness) ackAll(id uint64, files ...*snapshotv1.FileReference) {
	for i, t := range h.cfg.Tasks {
		a := checkpoint.Ack{Checkpoint: id, Handle: handle(t.ID), DeltaBytes: 7}
		if i == 0 {
			a.Handle.Files = files
		}
		h.send(a)
	}
}

func (h *harness) ackAllEnded(id uint64) {
	for _, t := range h.cfg.Tasks {
		a := checkpoint.Ack{Checkpoint: id, Handle: handle(t.ID)}
		a.Handle.Ended = true
		h.send(a)
	}
}

func metadata(id uint64) *snapshotv1.Segment {
	return &snapshotv1.Segment{Name: checkpoint.MetadataName("c", "j", id), Size: 9, Checkpoint: id}
}

// propose takes a checkpoint from its acknowledgements to the proposal.
func (h *harness) propose(id uint64, files ...*snapshotv1.FileReference) checkpoint.Propose {
	h.t.Helper()
	h.ackAll(id, files...)
	require.Equal(h.t, id, take[checkpoint.WriteMetadata](h).Checkpoint)
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	return take[checkpoint.Propose](h)
}

// commit takes a checkpoint to its completion.
func (h *harness) commit(id uint64, files ...*snapshotv1.FileReference) {
	h.t.Helper()
	h.propose(id, files...)
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
}

// trigger makes the next regular checkpoint begin.
func (h *harness) trigger() uint64 {
	h.t.Helper()
	h.send(checkpoint.Activity{Since: 1 << 40})
	h.pass(h.cfg.Interval)
	return take[checkpoint.Trigger](h).Checkpoint
}

func (h *harness) acked(id uint64) {
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: id}, checkpoint.CommitAcked{Worker: "w2", Checkpoint: id})
}

func (h *harness) statistics() []*jobv1.Checkpoint { return h.c.Statistics(h.now) }

func initial(cfg *checkpoint.Config) { cfg.Initial, cfg.Restored, cfg.FirstID = true, 0, 1 }
