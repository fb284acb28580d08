package fsm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

func settleEnded(n uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_SettleEnded{SettleEnded: &raftv1.SettleEnded{
		JobId: "j", Attempt: n, Token: "t", Placements: []*raftv1.Placement{{TaskmanagerId: "tm1", Incarnation: "i1", Host: "h1"}},
	}}}
}

func unfencedOf(r *raftv1.JobRecord) (ns []uint64) {
	for _, f := range r.GetUnfenced() {
		ns = append(ns, f.GetAttempt())
	}
	return ns
}

// What attempts of an ended job write again takes the place of what was lost, once, as while the job lived.
func TestAnEndedJobIsSettledByAttemptsOfItsOwn(t *testing.T) {
	w := endedUnsettled(t)
	require.EqualValues(t, 24, fsm.LevelOf(settleEnded(4)))
	require.Equal(t, []uint64{1, 2, 3}, unfencedOf(w.job()))
	w.rejected(fsm.ErrJobEnded, replaceAll(3, 1, replacement("late", 1)))
	w.rejected(fsm.ErrJobEnded, settlingAttempt(4))
	w.rejected(fsm.ErrStaleAttempt, settleEnded(3))
	w.rejected(fsm.ErrStaleAttempt, settleEnded(5))
	w.must(settleEnded(4))
	require.Equal(t, jobv1.JobState_JOB_STATE_FAILED, w.job().GetState())
	require.Equal(t, []uint64{1, 2, 3}, unfencedOf(w.job()), "the end has retired attempt 3")
	require.Equal(t, "a", string(w.job().GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
	w.rejected(fsm.ErrJobEnded, start(4))

	w.must(replaceAll(4, 1, replacement("b", 1)))
	w.must(settleEnded(5))
	require.Equal(t, []uint64{1, 2, 3, 4}, unfencedOf(w.job()), "it may have a transaction open")
	require.Equal(t, "b", string(w.job().GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
	w.rejected(fsm.ErrStaleAttempt, replaceAll(4, 1, replacement("c", 1)))

	w.must(settledResult(1, "", 1, 2, 3, 4))
	require.Empty(t, w.job().GetUnsettled())
	require.Empty(t, w.job().GetUnfenced())
	require.Nil(t, w.job().GetReplaced())
	require.True(t, w.job().GetCheckpoints()[0].GetSettled())
	w.rejected(fsm.ErrSettled, settleEnded(6))
	w.rejected(fsm.ErrJobEnded, replaceAll(5, 1, replacement("d", 1)))
}

// A job that began with the checkpoint and the checkpoint's owner must not both write again what was lost.
func TestAnEndedJobLeavesItsCheckpointToALiveOneThatBeganWithIt(t *testing.T) {
	w := endedUnsettled(t)
	w.must(settleEnded(4))
	w.must(beginning("k"))
	w.must(of("k", newAttempt(1)))
	w.rejected(fsm.ErrBeingSettled, replaceAll(4, 1, replacement("b", 1)))
	w.rejected(fsm.ErrBeingSettled, settleEnded(5))

	// The other one gives up, and what it has written again counts.
	w.must(of("k", replaceAll(1, 1, replacement("c", 1))))
	w.must(of("k", end("r", canceled)))
	w.must(of("k", result(goesOn, "the broker is away")))
	w.must(settleEnded(5))
	require.Equal(t, "c", string(w.job().GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
	w.must(replaceAll(5, 1, replacement("d", 1)))

	// What was begun with is its owner's to settle, also while nobody does.
	next := settleEnded(2)
	next.GetSettleEnded().JobId = "k"
	w.rejected(fsm.ErrBeingSettled, next)
	w.must(settledResult(1, "", 1, 2, 3, 4))
	w.must(next)
	require.True(t, get(t, w, "k").GetRestore().GetSettled(), "it has to fence and nothing else")
	require.Empty(t, get(t, w, "k").GetRestore().GetReplacements())
	w.rejected(fsm.ErrInvalid, of("k", replaceAll(2, 1, replacement("e", 1))))
}

func TestAJobThatBeganWithACheckpointOfAForgottenOne(t *testing.T) {
	w := endedUnsettled(t)
	w.must(beginning("k"))
	w.must(of("k", newAttempt(1)))
	w.must(of("k", end("r", canceled)))
	w.must(of("k", result(goesOn, "the broker is away")))
	w.must(forget("j"))
	next := settleEnded(2)
	next.GetSettleEnded().JobId = "k"
	w.rejected(fsm.ErrUnknownCheckpoint, next)
}

func TestWhoIsNotSettledAfterTheEnd(t *testing.T) {
	w := restoring(t)
	w.rejected(fsm.ErrJobLive, settleEnded(3))
	w.must(end("r", canceled))
	w.rejected(fsm.ErrJobLive, settleEnded(3))
	w.must(result(goesOn, "the broker is away"))
	for name, change := range map[string]func(*raftv1.SettleEnded){
		"placement": func(c *raftv1.SettleEnded) { c.Placements = nil },
		"token":     func(c *raftv1.SettleEnded) { c.Token = "" },
	} {
		cmd := settleEnded(3)
		change(cmd.GetSettleEnded())
		w.rejected(fsm.ErrInvalid, cmd)
		require.Empty(t, w.job().GetToken(), name)
	}
}
