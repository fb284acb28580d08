package fsm_test

import (
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
