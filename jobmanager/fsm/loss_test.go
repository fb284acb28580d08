package fsm_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

func lose(lost ...*jobv1.LostOutput) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RecordLoss{RecordLoss: &raftv1.RecordLoss{JobId: "j", Lost: lost}}}
}

func settledResult(checkpoint uint64, left string, attempts ...uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_SettleResult{SettleResult: &raftv1.SettleResult{
		JobId: "j", Checkpoint: checkpoint, Unsettled: left, Attempts: attempts,
	}}}
}

func TestALossIsKnownOnceAndStaysAccepted(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	lost := func(transaction string, accepted bool) *jobv1.LostOutput {
		return &jobv1.LostOutput{Sink: "out", Transaction: transaction, Checkpoint: 5, Records: 7, Accepted: accepted}
	}
	w.must(lose(lost("a", false), lost("b", false)))
	w.repeated(lose(lost("a", false)))
	require.Len(t, fsm.Unaccepted(w.job(), 5), 2)
	require.Empty(t, fsm.Unaccepted(w.job(), 4), "of a later checkpoint")
	before := w.job().GetLost()[0]
	w.must(lose(lost("a", true)))
	require.False(t, before.GetAccepted(), "a record taken before stays what it was")
	w.repeated(lose(lost("a", false)))
	require.Equal(t, "b", fsm.Unaccepted(w.job(), 5)[0].GetTransaction())
}

func TestALossKeepsTheCheckpointUntilItIsAccepted(t *testing.T) {
	for accepted, kept := range map[bool]int{false: 1, true: 0} {
		w := runningWorld(t)
		w.must(completed(1, 5))
		w.must(end("e", canceled))
		w.must(lose(&jobv1.LostOutput{Transaction: "a", Checkpoint: 5, Accepted: accepted}))
		require.Len(t, w.must(result(goesOn, "")).GetCheckpoints(), kept)
	}
}

func TestAJobBeginsWithTheLossesThatWereAccepted(t *testing.T) {
	w := newWorld(t)
	r := record("j")
	r.Lost = []*jobv1.LostOutput{{Transaction: "a", Accepted: true}}
	cmd := createRecord(r)
	require.EqualValues(t, 20, fsm.LevelOf(cmd), "older members would forget them")
	require.Len(t, w.must(cmd).GetLost(), 1)
	require.EqualValues(t, 2, fsm.LevelOf(create("k")))
}

func TestUnsettledJobIsSettledLater(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.rejected(fsm.ErrJobLive, settledResult(5, ""))
	w.must(end("e", canceled))
	w.must(result(goesOn, "broker gone"))
	require.Len(t, w.job().GetUnfenced(), 1)
	w.repeated(settledResult(0, "broker gone"))
	require.Equal(t, "topic gone", w.must(settledResult(0, "topic gone")).GetUnsettled())
	r := w.must(settledResult(5, "", 1))
	require.Empty(t, r.GetUnsettled())
	require.Empty(t, r.GetUnfenced())
	require.Empty(t, r.GetUnfencedWorkers())
	require.Empty(t, r.GetCheckpoints(), "nobody needs it any more")
	require.True(t, r.GetGarbage()[0].GetSettled())
	require.Equal(t, canceled, r.GetState())
	w.repeated(settledResult(5, "", 1))
}

func updated(lost ...*jobv1.LostOutput) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_UpdateLosses{UpdateLosses: &raftv1.UpdateLosses{JobId: "j", Lost: lost}}}
}

func withdraw(lost ...*jobv1.LostOutput) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_UpdateLosses{UpdateLosses: &raftv1.UpdateLosses{JobId: "j", Withdrawn: lost}}}
}

// loss is a transaction of checkpoint 5 that is lost, and pending one that was ordered to be aborted.
func loss(transaction string) *jobv1.LostOutput {
	return &jobv1.LostOutput{Sink: "out", Transaction: transaction, Checkpoint: 5, Records: 7, Reason: "it timed out"}
}

func pending(transaction string) *jobv1.LostOutput {
	l := loss(transaction)
	l.Pending, l.Accepted, l.Reason = true, true, "by hand"
	return l
}

// unsettledWorld has a job that was canceled with transactions of checkpoint 5 left open.
func unsettledWorld(t *testing.T) *world {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.must(end("e", canceled))
	w.must(result(goesOn, "broker gone"))
	return w
}

func TestAnOrderToAbortIsKnownUntilItsOutcomeIs(t *testing.T) {
	require.EqualValues(t, 25, fsm.LevelOf(updated()))
	for name, test := range map[string]struct {
		then    func(*world)
		want    *jobv1.LostOutput // nil for none
		reasons []string
	}{
		"nothing more":      {func(*world) {}, pending("a"), []string{"by hand"}},
		"it is given twice": {func(w *world) { w.repeated(updated(pending("a"))) }, pending("a"), []string{"by hand"}},
		"it is carried out": {func(w *world) {
			l := loss("a")
			l.Accepted = true
			w.must(updated(l))
		}, loss("a"), []string{"it timed out"}},
		"it is carried out, and an older leader says so": {func(w *world) {
			l := loss("a")
			l.Accepted = true
			w.must(lose(l))
		}, loss("a"), []string{"it timed out"}},
		"it is refused": {func(w *world) {
			w.must(withdraw(pending("a")))
			w.repeated(withdraw(pending("a")))
		}, nil, nil},
		"another one is refused":                 {func(w *world) { w.repeated(withdraw(pending("b"))) }, pending("a"), []string{"by hand"}},
		"the settling finds it committed":        {func(w *world) { w.must(settledResult(5, "", 1)) }, nil, nil},
		"the settling of something else is over": {func(w *world) { w.must(settledResult(4, "broker gone", 1)) }, pending("a"), []string{"by hand"}},
		"the settling finds it lost": {func(w *world) {
			w.must(updated(loss("a")))
			w.must(settledResult(5, "", 1))
		}, loss("a"), []string{"it timed out", "by hand"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := unsettledWorld(t)
			w.must(updated(pending("a")))
			test.then(w)
			if test.want == nil {
				require.Empty(t, w.job().GetLost())
				return
			}
			require.Len(t, w.job().GetLost(), 1)
			got := w.job().GetLost()[0]
			require.Equal(t, test.want.GetPending(), got.GetPending())
			require.True(t, got.GetAccepted(), "the one who gave the order accepts it")
			for _, r := range test.reasons {
				require.Contains(t, got.GetReason(), r)
			}
		})
	}
}

// An order that comes too late to do anything is not one whose outcome somebody would still find out.
func TestAnOrderToAbortOfAJobThatIsSettled(t *testing.T) {
	w := unsettledWorld(t)
	w.must(settledResult(5, "", 1))
	w.repeated(updated(pending("a")))
	require.Empty(t, w.job().GetLost())
	w.must(updated(loss("a")))
	require.Len(t, w.job().GetLost(), 1)
}

// Whoever settles the checkpoint has told of what is lost before.
func TestWhatIsPendingWhenALiveJobSettlesIsCommitted(t *testing.T) {
	for name, settle := range map[string]func(*world){
		"by the acknowledged commit": func(w *world) { w.must(settled(5)) },
		"by a restart": func(w *world) {
			w.must(fail(1, 1, true))
			w.must(newAttempt(2))
			w.must(start(2))
		},
		"by its end": func(w *world) {
			w.must(end("e", canceled))
			w.must(result(goesOn, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := runningWorld(t)
			w.must(completed(1, 5))
			later := pending("b")
			later.Checkpoint = 6
			w.must(updated(pending("a"), later))
			settle(w)
			var left []string
			for _, l := range w.job().GetLost() {
				left = append(left, l.GetTransaction())
			}
			require.NotContains(t, left, "a")
			if !fsm.Terminal(w.job().GetState()) {
				require.Equal(t, []string{"b"}, left)
			}
		})
	}
}

// What a job cannot commit of the checkpoint that it begins with is known to whoever begins with it next.
func TestLossesOfACheckpointAreKnownToItsOwner(t *testing.T) {
	w := endedUnsettled(t)
	order := pending("a")
	order.Checkpoint = 1
	w.must(updated(order))
	w.must(beginning("k"))
	w.must(of("k", newAttempt(1)))
	lost := func(transaction string) *jobv1.LostOutput {
		return &jobv1.LostOutput{Sink: "out", Transaction: transaction, Checkpoint: 1, Accepted: true}
	}
	w.must(of("k", updated(lost("a"), lost("b"))))
	w.must(of("k", start(1)))
	require.Len(t, get(t, w, "k").GetLost(), 2)
	require.Empty(t, fsm.Unaccepted(get(t, w, "k"), 1))
	require.Len(t, w.job().GetLost(), 2)
	require.False(t, w.job().GetLost()[0].GetPending())
	require.True(t, w.job().GetLost()[0].GetAccepted(), "by the one who ordered it to be aborted")
	require.Len(t, fsm.Unaccepted(w.job(), 1), 1)
	w.must(of("k", updated(&jobv1.LostOutput{Sink: "out", Transaction: "c", Checkpoint: 2})))
	require.Len(t, w.job().GetLost(), 2, "what it loses later is its own")
}

// A loss that nobody has accepted is never forgotten.
func TestLossesForWhichThereIsNoRoom(t *testing.T) {
	const room = 10000
	many := func(n int, of uint64, accepted bool) (out []*jobv1.LostOutput) {
		for i := range n {
			out = append(out, &jobv1.LostOutput{Sink: "out", Transaction: fmt.Sprintf("%d-%d", of, i), Checkpoint: of, Records: 2, Accepted: accepted})
		}
		return out
	}
	t.Run("accepted ones go first", func(t *testing.T) {
		w := unsettledWorld(t)
		w.must(updated(many(10, 3, false)...))
		w.must(updated(many(10, 4, true)...))
		w.must(updated(pending("a")))
		w.must(updated(many(room-15, 5, false)...))
		require.Len(t, w.job().GetLost(), room)
		require.Len(t, fsm.Unaccepted(w.job(), 3), 10)
		require.Equal(t, "4-6", w.job().GetLost()[10].GetTransaction(), "of those the oldest")
	})
	t.Run("the others are counted", func(t *testing.T) {
		w := unsettledWorld(t)
		w.must(updated(append(many(3, 3, false), &jobv1.LostOutput{Transaction: "u", Checkpoint: 3, Records: -1, Unknown: true})...))
		w.must(updated(pending("a")))
		w.must(updated(many(room, 5, false)...))
		require.Len(t, w.job().GetLost(), room+2)
		left := fsm.Unaccepted(w.job(), 4)
		require.Len(t, left, 2, "a start from checkpoint 4 is refused for both reasons")
		slices.SortFunc(left, func(a, b *jobv1.LostOutput) int { return cmp.Compare(a.GetRecords(), b.GetRecords()) })
		require.True(t, left[0].GetUnknown())
		require.EqualValues(t, 1, left[0].GetTransactions())
		require.EqualValues(t, -1, left[0].GetRecords())
		require.EqualValues(t, 3, left[1].GetTransactions()-1, "and the oldest of checkpoint 5")
		require.EqualValues(t, 8, left[1].GetRecords())
		require.Empty(t, fsm.Unaccepted(w.job(), 2))

		w.must(updated(many(4, 6, false)...))
		require.Len(t, w.job().GetLost(), room+2)
		counts := uint64(0)
		for _, l := range fsm.Unaccepted(w.job(), 9) {
			counts += max(1, l.GetTransactions())
		}
		require.EqualValues(t, 4+room+4, counts)
	})
	t.Run("an older leader's entry means what it meant", func(t *testing.T) {
		w := unsettledWorld(t)
		w.must(lose(many(10, 3, false)...))
		w.must(lose(many(room, 5, false)...))
		require.Len(t, w.job().GetLost(), room)
		require.Empty(t, fsm.Unaccepted(w.job(), 3))
	})
}

// A job that has no checkpoint of its own settles the one that it began with, or leaves that to the owner.
func TestWhatIsPendingOfACheckpointOfAnotherJob(t *testing.T) {
	order := pending("a")
	order.Checkpoint = 1
	begun := func() *world {
		w := endedUnsettled(t)
		w.must(beginning("k"))
		w.must(of("k", newAttempt(1)))
		w.must(of("k", updated(order)))
		return w
	}
	w := begun()
	w.must(of("k", start(1)))
	require.Empty(t, get(t, w, "k").GetLost())

	w = begun()
	w.must(of("k", end("r", canceled)))
	w.must(of("k", result(goesOn, "broker gone")))
	require.Len(t, get(t, w, "k").GetLost(), 1)
	w.must(&raftv1.Command{Command: &raftv1.Command_SettleResult{SettleResult: &raftv1.SettleResult{JobId: "k"}}})
	require.Empty(t, get(t, w, "k").GetLost())
}
