package fsm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

func TestCompletionIsRecorded(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	r := w.must(completed(1, 8, 5))
	require.Equal(t, []uint64{5, 8}, ids(r.GetCheckpoints()))
	require.Equal(t, uint64(2), r.GetCompletedCheckpoints())
	require.Equal(t, running, r.GetState())
}

func TestCompletionOfAnotherAttemptIsStale(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrStaleAttempt, completed(2, 5))
	w.must(newAttempt(2))
	w.must(start(2))
	w.rejected(fsm.ErrStaleAttempt, completed(1, 5))
}

func TestCompletionNeedsAStartedAttempt(t *testing.T) {
	w := runningWorld(t)
	w.must(newAttempt(2))
	w.rejected(fsm.ErrNotStarted, completed(2, 5))
}

func TestCompletionMustBeNewer(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.rejected(fsm.ErrCheckpointNotNewer, completed(1, 5))
	w.rejected(fsm.ErrCheckpointNotNewer, completed(1, 4))
}

func TestCompletionNeedsAReservedID(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrNotReserved, completed(1, 1000))
	w.must(completed(1, 999))
}

func TestCompletionNeedsMetadata(t *testing.T) {
	w := runningWorld(t)
	cp := checkpoint(1, 5)
	cp.Metadata = nil
	w.rejected(fsm.ErrInvalid, complete(cp, goesOn))
	w.rejected(fsm.ErrStaleAttempt, complete(nil, goesOn))
}

func TestCompletionNeedsItsOriginsRetained(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 1))
	w.must(completed(1, 2, 1))
	w.must(completed(1, 3))
	w.must(completed(1, 4))
	w.must(completed(1, 5))
	require.Equal(t, []uint64{3, 4, 5}, ids(w.job().GetCheckpoints()))
	w.rejected(fsm.ErrMissingOrigin, completed(1, 6, 1))
	w.rejected(fsm.ErrMissingOrigin, completed(1, 6, 5, 2))
	w.must(completed(1, 6, 3, 5))
	w.must(completed(1, 7))
	require.Equal(t, []uint64{5, 6, 7}, ids(w.job().GetCheckpoints()))
	w.must(completed(1, 8, 3)) // 6 still protects files of 3.
}

func TestPinnedCheckpointProtectsItsOrigins(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 1))
	w.must(pin(1, true))
	for id := uint64(2); id <= 5; id++ {
		w.must(completed(1, id))
	}
	w.must(completed(1, 6, 1))
}

func TestRetentionMovesOldCheckpointsToTheGarbage(t *testing.T) {
	w := runningWorld(t)
	for id := uint64(1); id <= 5; id++ {
		w.must(completed(1, id))
	}
	require.Equal(t, []uint64{3, 4, 5}, ids(w.job().GetCheckpoints()))
	require.Equal(t, []uint64{1, 2}, ids(w.job().GetGarbage()))
	require.Equal(t, []uint64{2}, ids(w.must(dropGarbage(1, 3)).GetGarbage()))
	w.repeated(dropGarbage(1, 3))
	require.Equal(t, []uint64{3, 4, 5}, ids(w.job().GetCheckpoints()), "what is retained is no garbage")
}

func TestLastCheckpointIsRetainedWhateverTheConfiguration(t *testing.T) {
	w := newWorld(t)
	job := record("j")
	job.Graph.Checkpoints = nil
	w.must(createRecord(job))
	w.must(reserve(10))
	w.must(newAttempt(1))
	w.must(start(1))
	w.must(completed(1, 1))
	require.Equal(t, []uint64{2}, ids(w.must(completed(1, 2)).GetCheckpoints()))
}

func TestPinnedCheckpointIsNotDropped(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 1))
	w.must(pin(1, true))
	w.repeated(pin(1, true))
	for id := uint64(2); id <= 5; id++ {
		w.must(completed(1, id))
	}
	require.Equal(t, []uint64{1, 3, 4, 5}, ids(w.job().GetCheckpoints()))
	r := w.must(pin(1, false))
	require.Equal(t, []uint64{3, 4, 5}, ids(r.GetCheckpoints()))
	require.Equal(t, []uint64{2, 1}, ids(r.GetGarbage()))
	w.rejected(fsm.ErrUnknownCheckpoint, pin(1, true))
	w.rejected(fsm.ErrUnknownCheckpoint, pin(77, true))
}

func TestCheckpointMayBeCompletedPinned(t *testing.T) {
	w := runningWorld(t)
	cp := checkpoint(1, 1)
	cp.Pinned = true
	w.must(complete(cp, goesOn))
	for id := uint64(2); id <= 5; id++ {
		w.must(completed(1, id))
	}
	require.Equal(t, []uint64{1, 3, 4, 5}, ids(w.job().GetCheckpoints()))
}

func TestPinOutlivesTheJob(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 1))
	w.must(pin(1, true))
	w.must(end("e", canceled))
	require.Equal(t, []uint64{1}, ids(w.must(result(goesOn, "")).GetCheckpoints()))
	w.rejected(fsm.ErrGarbageLeft, forget("j"))
	require.Empty(t, w.must(pin(1, false)).GetCheckpoints())
}

func TestRestorePointIsNotDropped(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 1))
	w.must(newAttempt(2))
	w.must(start(2))
	for id := uint64(2); id <= 6; id++ {
		w.must(completed(2, id))
	}
	require.Equal(t, []uint64{1, 4, 5, 6}, ids(w.job().GetCheckpoints()))
	require.Equal(t, []uint64{4, 5, 6}, ids(w.must(newAttempt(3)).GetCheckpoints()), "the next attempt lets go of it")
}

func TestFinalCompletionFinishesTheJob(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrInvalid, complete(checkpoint(1, 5), finished))
	cp := checkpoint(1, 5)
	cp.Final = true
	r := w.must(complete(cp, finished))
	require.Equal(t, settling, r.GetState())
	require.Equal(t, finished, r.GetTarget())
	w.rejected(fsm.ErrJobEnding, completed(1, 6))
	w.rejected(fsm.ErrJobEnding, end("e", canceled))
	require.Equal(t, finished, w.must(result(goesOn, "")).GetState())
}

func TestStopCompletionStopsTheJob(t *testing.T) {
	w := runningWorld(t)
	w.must(requestStop("s", ""))
	w.rejected(fsm.ErrInvalid, complete(checkpoint(1, 5), stopped))
	cp := checkpoint(1, 5)
	cp.Stop = true
	r := w.must(complete(cp, stopped))
	require.Equal(t, settling, r.GetState())
	require.Equal(t, stopped, r.GetTarget())
}

func TestStopCompletionAfterTheStopWasCleared(t *testing.T) {
	w := runningWorld(t)
	w.must(requestStop("s", ""))
	w.must(clearStop("changed my mind"))
	cp := checkpoint(1, 5)
	cp.Stop = true
	w.rejected(fsm.ErrNotStopping, complete(cp, stopped))
}

func TestCompletionCannotFailAJob(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrInvalid, complete(checkpoint(1, 5), failed))
	w.rejected(fsm.ErrInvalid, complete(checkpoint(1, 5), running))
}

func TestSettlingCoversEverythingBefore(t *testing.T) {
	w := runningWorld(t)
	for id := uint64(1); id <= 3; id++ {
		w.must(completed(1, id))
	}
	w.rejected(fsm.ErrUnknownCheckpoint, settled(4))
	r := w.must(settled(2))
	var got []bool
	for _, cp := range r.GetCheckpoints() {
		got = append(got, cp.GetSettled())
	}
	require.Equal(t, []bool{true, true, false}, got)
	w.repeated(settled(2))
	require.True(t, w.must(newAttempt(2)).GetRestore().GetCheckpoint() == 3 && !w.job().GetRestore().GetSettled())
}

func TestCheckpointWithoutTransactionsIsSettled(t *testing.T) {
	w := runningWorld(t)
	cp := checkpoint(1, 5)
	cp.Committables = 0
	require.True(t, w.must(complete(cp, goesOn)).GetCheckpoints()[0].GetSettled())
	require.False(t, cp.GetSettled(), "the command is not modified")
}

func TestIDsAreReservedOnce(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	require.Equal(t, uint64(1), w.apply(reserve(100)).FirstID)
	require.Equal(t, uint64(100), w.apply(reserve(200)).FirstID)
	w.rejected(fsm.ErrAlreadyReserved, reserve(200))
	w.rejected(fsm.ErrAlreadyReserved, reserve(50))
	require.Equal(t, uint64(200), w.job().GetNextCheckpoint())
}

func TestLastCheckpoint(t *testing.T) {
	_, ok := fsm.LastCheckpoint(&raftv1.JobRecord{})
	require.False(t, ok)
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.must(completed(1, 6))
	last, ok := fsm.LastCheckpoint(w.job())
	require.True(t, ok)
	require.Equal(t, uint64(6), last.GetId())
}
