package fsm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

func TestAttemptMustBeTheNext(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.rejected(fsm.ErrStaleAttempt, newAttempt(0))
	w.rejected(fsm.ErrStaleAttempt, newAttempt(2))
	r := w.must(newAttempt(1))
	require.Equal(t, deploying, r.GetState())
	require.Equal(t, "token-1", r.GetToken())
	require.Len(t, r.GetPlacements(), 1)
	require.Zero(t, r.GetRestarts())
	w.rejected(fsm.ErrStaleAttempt, newAttempt(1))
}

func TestAttemptNeedsAPlacement(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	cmd := newAttempt(1)
	cmd.GetNewAttempt().Placements = nil
	w.rejected(fsm.ErrInvalid, cmd)
}

func TestStartMakesTheJobRun(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.rejected(fsm.ErrStaleAttempt, start(0))
	w.must(newAttempt(1))
	w.rejected(fsm.ErrStaleAttempt, start(2))
	r := w.must(start(1))
	require.Equal(t, running, r.GetState())
	require.True(t, r.GetStarted())
	require.True(t, r.GetPrepared())
	require.Equal(t, uint64(250), r.GetLastRecoveryMs())
	w.repeated(start(1))
	w.must(newAttempt(2))
	require.False(t, w.job().GetStarted())
	require.True(t, w.job().GetPrepared(), "once prepared, always")
	w.rejected(fsm.ErrStaleAttempt, start(1))
}

func TestStartAfterFailureIsStale(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.must(newAttempt(1))
	w.must(fail(1, 5, true))
	w.rejected(fsm.ErrStaleAttempt, start(1))
}

func TestStartOfAnEndingJobIsRefused(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.must(newAttempt(1))
	w.must(end("e", canceled))
	w.rejected(fsm.ErrJobEnding, start(1))
}

func TestAttemptStartsFromNothing(t *testing.T) {
	require.Nil(t, runningWorld(t).job().GetRestore())
}

func TestAttemptStartsFromTheLastCompletedCheckpoint(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.must(completed(1, 6))
	r := w.must(newAttempt(2))
	requireEqualProto(t, &workerv1.RestorePoint{Metadata: checkpoint(1, 6).GetMetadata(), Checkpoint: 6}, r.GetRestore())
	w.rejected(fsm.ErrStaleAttempt, completed(1, 7))
}

func TestAttemptStartsFromTheSavepointUntilItHasACheckpoint(t *testing.T) {
	w := newWorld(t)
	job := record("j")
	job.From = &workerv1.RestorePoint{Metadata: &snapshotv1.Segment{Name: "file:///sp/metadata"}, Checkpoint: 57, Savepoint: true}
	job.AllowDroppedState = true
	r := w.must(createRecord(job))
	require.Equal(t, uint64(58), r.GetNextCheckpoint(), "ids grow beyond the savepoint's")
	for n := uint64(1); n <= 2; n++ {
		restore := w.must(newAttempt(n)).GetRestore()
		require.Equal(t, uint64(57), restore.GetCheckpoint())
		require.True(t, restore.GetSavepoint())
		require.True(t, restore.GetAllowDroppedState())
		w.must(start(n))
	}
	require.False(t, job.GetFrom().GetAllowDroppedState(), "the definition is not modified")
	w.must(reserve(100))
	w.rejected(fsm.ErrCheckpointNotNewer, completed(2, 57))
	w.rejected(fsm.ErrMissingOrigin, completed(2, 58, 57))
	w.must(completed(2, 58))
	restore := w.must(newAttempt(3)).GetRestore()
	require.Equal(t, uint64(58), restore.GetCheckpoint())
	require.False(t, restore.GetSavepoint())
}

func TestStartSettlesTheRestorePoint(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	require.False(t, w.must(newAttempt(2)).GetRestore().GetSettled())
	require.False(t, w.job().GetCheckpoints()[0].GetSettled())
	r := w.must(start(2))
	require.True(t, r.GetRestore().GetSettled())
	require.True(t, r.GetCheckpoints()[0].GetSettled())
	require.True(t, w.must(newAttempt(3)).GetRestore().GetSettled(), "a later restore asks no broker")
}

func TestStartSettlesWhatTheJobStartedFrom(t *testing.T) {
	w := newWorld(t)
	job := record("j")
	job.From = &workerv1.RestorePoint{Metadata: &snapshotv1.Segment{Name: "c/jobs/old/checkpoints/57/metadata"}, Checkpoint: 57}
	w.must(createRecord(job))
	require.False(t, w.must(newAttempt(1)).GetRestore().GetSettled())
	w.must(start(1))
	require.True(t, w.must(newAttempt(2)).GetRestore().GetSettled())
}

func TestStartedAttemptIsUnfencedOnceReplaced(t *testing.T) {
	w := runningWorld(t)
	require.Empty(t, w.job().GetUnfenced())
	r := w.must(newAttempt(2))
	require.Len(t, r.GetUnfenced(), 1)
	requireEqualProto(t, &workerv1.FencedAttempt{Attempt: 1, Sinks: extents()}, r.GetUnfenced()[0])
}

func TestWorkersOfUnfencedAttemptsAreKept(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	for n := uint64(1); n <= 2; n++ {
		cmd := newAttempt(n)
		incarnation := fmt.Sprintf("i%d", n)
		cmd.GetNewAttempt().Placements = []*raftv1.Placement{
			{Slot: 0, TaskmanagerId: "tm1", Incarnation: incarnation},
			{Slot: 1, TaskmanagerId: "tm1", Incarnation: incarnation},
			{Slot: 2, TaskmanagerId: "tm2", Incarnation: incarnation},
		}
		w.must(cmd)
		w.must(start(n))
	}
	r := w.must(newAttempt(3))
	require.Len(t, r.GetUnfencedWorkers(), 2)
	requireEqualProto(t, &raftv1.AttemptWorkers{Attempt: 1, Workers: []*raftv1.WorkerHost{
		{TaskmanagerId: "tm1", Incarnation: "i1"}, {TaskmanagerId: "tm2", Incarnation: "i1"},
	}}, r.GetUnfencedWorkers()[0])
	r = w.must(fenced(1))
	require.Len(t, r.GetUnfencedWorkers(), 1)
	require.EqualValues(t, 2, r.GetUnfencedWorkers()[0].GetAttempt())
}

func TestFailedAttemptIsUnfencedOnceReplaced(t *testing.T) {
	w := runningWorld(t)
	w.must(fail(1, 5, true))
	require.Len(t, w.must(newAttempt(2)).GetUnfenced(), 1)
}

func TestAttemptThatNeverStartedUsedNoIDs(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.must(newAttempt(1))
	require.Empty(t, w.must(newAttempt(2)).GetUnfenced())
}

func TestJobWithoutTransactionsHasNothingToFence(t *testing.T) {
	w := newWorld(t)
	job := record("j")
	for _, v := range job.GetGraph().GetVertices() {
		for _, op := range v.GetOperators() {
			op.TransactionSlots = 0
		}
	}
	w.must(createRecord(job))
	w.must(newAttempt(1))
	w.must(start(1))
	require.Empty(t, w.must(newAttempt(2)).GetUnfenced())
}

func TestFencedAttemptsAreForgotten(t *testing.T) {
	w := runningWorld(t)
	for n := uint64(2); n <= 4; n++ {
		w.must(newAttempt(n))
		w.must(start(n))
	}
	r := w.must(fenced(1, 3))
	require.Len(t, r.GetUnfenced(), 1)
	require.Equal(t, uint64(2), r.GetUnfenced()[0].GetAttempt())
	w.repeated(fenced(1, 3))
	w.must(end("e", canceled))
	w.must(result(goesOn, "slow"))
	require.Empty(t, w.must(fenced(2, 4)).GetUnfenced(), "also after the job has ended")
}

func TestFailureLeadsToRestarting(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrStaleAttempt, fail(0, 1, true))
	w.rejected(fsm.ErrStaleAttempt, fail(2, 1, true))
	r := w.must(fail(1, 1234, true))
	require.Equal(t, restarting, r.GetState())
	require.Equal(t, "boom", r.GetFailures()[0].GetMessage())
	require.Len(t, r.GetPlacements(), 1, "the scheduler prefers the former placement")
	requireEqualProto(t, &raftv1.RestartEntry{AtMs: 1234, Counted: true}, r.GetRestartHistory()[0])
	w.repeated(fail(1, 1235, true))
	r = w.must(newAttempt(2))
	require.Equal(t, deploying, r.GetState())
	require.Equal(t, uint64(1), r.GetRestarts())
}

func TestCompletionBetweenFailureAndNewAttemptCounts(t *testing.T) {
	w := runningWorld(t)
	w.must(fail(1, 5, true))
	w.must(completed(1, 5))
	require.Equal(t, restarting, w.job().GetState())
	require.Equal(t, uint64(5), w.must(newAttempt(2)).GetRestore().GetCheckpoint())
}

func TestRestartHistoryKeepsWhatThePolicyLooksAt(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	for n := uint64(1); n <= 60; n++ {
		w.must(newAttempt(n))
		w.must(fail(n, int64(n), n%5 == 0))
	}
	var counted, others []int64
	for _, e := range w.job().GetRestartHistory() {
		if e.GetCounted() {
			counted = append(counted, e.GetAtMs())
		} else {
			others = append(others, e.GetAtMs())
		}
	}
	require.Equal(t, []int64{50, 55, 60}, counted, "one more than the two restarts allowed")
	require.Len(t, others, 20)
	require.Equal(t, int64(59), others[19])
}

func TestSettlingAttemptIsForEndingJobsOnly(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.rejected(fsm.ErrNotEnding, settlingAttempt(2))
	w.must(end("e", canceled))
	r := w.must(settlingAttempt(2))
	require.Equal(t, settling, r.GetState())
	require.True(t, r.GetSettlingAttempt())
	require.Zero(t, r.GetRestarts())
	require.Equal(t, uint64(5), r.GetRestore().GetCheckpoint())
	require.Len(t, r.GetUnfenced(), 1)
	r = w.must(start(2))
	require.Equal(t, settling, r.GetState())
	require.True(t, r.GetCheckpoints()[0].GetSettled())
	w.rejected(fsm.ErrJobEnding, completed(2, 6))
	require.Len(t, w.must(settlingAttempt(3)).GetUnfenced(), 1, "a settling attempt uses no ids of its own")
	w.must(result(goesOn, ""))
	w.rejected(fsm.ErrJobEnded, settlingAttempt(4))
	w.rejected(fsm.ErrJobEnded, newAttempt(4))
	w.rejected(fsm.ErrJobEnded, fail(3, 1, true))
}

func TestSettlingMakesNoJobPrepared(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	w.must(newAttempt(1))
	w.must(end("e", canceled))
	w.must(settlingAttempt(2))
	require.False(t, w.must(start(2)).GetPrepared())
}

func TestFailureWhileEndingChangesNothingButTheHistory(t *testing.T) {
	w := runningWorld(t)
	w.must(end("e", canceled))
	r := w.must(fail(1, 5, true))
	require.Equal(t, settling, r.GetState())
	require.Len(t, r.GetFailures(), 2)
	require.Empty(t, r.GetRestartHistory())
}
