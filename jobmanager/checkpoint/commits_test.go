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
