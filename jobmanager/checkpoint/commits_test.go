package checkpoint_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

func TestNoticeIsRepeatedUntilAcknowledged(t *testing.T) {
	h := newHarness(t)
	h.send(checkpoint.Activity{})
	h.pass(time.Second)
	h.commit(11)
	h.ignore()
	h.pass(2 * time.Second)
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}}, checkpoint.Notify{Checkpoint: 11, Workers: []string{"w1", "w2"}})
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: 11})
	h.pass(time.Second)
	h.expect(checkpoint.Notify{Checkpoint: 11, Workers: []string{"w2"}})
	h.send(checkpoint.CommitAcked{Worker: "w2", Checkpoint: 11})
	h.pass(5 * time.Second)
	h.expect()
}

func TestCommitOfWhatIsNotCompletedIsNotBelieved(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	h.acked(id)
	h.commit(id)
	require.Equal(t, []string{"w1", "w2"}, take[checkpoint.Notify](h).Workers)
}

func TestCommitsAreCumulative(t *testing.T) {
	h := newHarness(t)
	first := h.trigger()
	h.commit(first)
	second := h.trigger()
	h.ignore()
	h.commit(second)
	h.expect(checkpoint.Notify{Checkpoint: second, Workers: []string{"w1", "w2"}})
	h.acked(second)
	h.pass(20 * time.Second)
	require.Equal(t, second, take[checkpoint.Settle](h).Checkpoint)
}

// Slow commits make checkpoints rarer instead of taking one transactional id after the other.
func TestCheckpointsWaitForCommitsThatAreFarBehind(t *testing.T) {
	h := newHarness(t)
	first := h.trigger()
	h.commit(first)
	second := h.trigger()
	h.commit(second)
	h.send(checkpoint.Activity{Since: second})
	h.ignore()
	h.pass(time.Minute)
	none[checkpoint.Trigger](h)
	h.send(checkpoint.CommitAcked{Worker: "w1", Checkpoint: second}, checkpoint.CommitAcked{Worker: "w2", Checkpoint: first})
	require.Equal(t, second+1, take[checkpoint.Trigger](h).Checkpoint, "one of them may still be on its way")
}

// What a user waits for does not wait for commits, which may be what is wrong.
func TestAStopDoesNotWaitForCommits(t *testing.T) {
	h := newHarness(t)
	h.commit(h.trigger())
	second := h.trigger()
	h.commit(second)
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "r"})
	require.Equal(t, second+1, take[checkpoint.Trigger](h).Checkpoint)
}

func TestSettlingIsBatched(t *testing.T) {
	h := newHarness(t)
	settled := 0
	for range 60 {
		id := h.trigger()
		h.commit(id)
		h.acked(id)
		for _, e := range h.effects {
			if _, ok := e.(checkpoint.Settle); ok {
				settled++
			}
		}
		h.ignore()
	}
	require.InDelta(t, 6, settled, 1, "within 60 s")
}

func TestNothingToSettleWithoutTransactions(t *testing.T) {
	h := newHarness(t)
	id := h.trigger()
	for _, task := range h.cfg.Tasks {
		a := handle(task.ID)
		a.Committables = 0
		h.send(checkpoint.Ack{Checkpoint: id, Handle: a})
	}
	h.send(checkpoint.MetadataWritten{Checkpoint: id, Metadata: metadata(id)})
	h.send(checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed})
	h.acked(id)
	h.ignore()
	h.send(checkpoint.RequestStop{RequestID: "s"})
	h.pass(time.Minute)
	none[checkpoint.Settle](h)
}
