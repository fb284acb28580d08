package fsm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// of makes a command about job j one about another job.
func of(id string, cmd *raftv1.Command) *raftv1.Command {
	switch c := cmd.GetCommand().(type) {
	case *raftv1.Command_NewAttempt:
		c.NewAttempt.JobId = id
	case *raftv1.Command_StartAttempt:
		c.StartAttempt.JobId = id
	case *raftv1.Command_FailAttempt:
		c.FailAttempt.JobId = id
	case *raftv1.Command_EndJob:
		c.EndJob.JobId = id
	case *raftv1.Command_RecordResult:
		c.RecordResult.JobId = id
	case *raftv1.Command_ReplaceTransactions:
		c.ReplaceTransactions.JobId = id
	case *raftv1.Command_UpdateLosses:
		c.UpdateLosses.JobId = id
	default:
		panic("not about a job")
	}
	return cmd
}

// beginning creates a job that begins with checkpoint 1 of job j.
func beginning(id string) *raftv1.Command {
	r := record(id)
	r.Graph = durableGraph()
	r.From = &workerv1.RestorePoint{Metadata: checkpoint(1, 1).GetMetadata(), Checkpoint: 1}
	return createRecord(r)
}

// endedUnsettled is a world in which job j has failed without its transactions of checkpoint 1 being settled.
func endedUnsettled(t *testing.T) *world {
	w := restoring(t)
	w.must(end("r", jobv1.JobState_JOB_STATE_FAILED))
	w.must(settlingAttempt(3))
	w.must(replaceAll(3, 1, replacement("a", 1)))
	w.must(result(goesOn, "the broker is away"))
	return w
}

func get(t *testing.T, w *world, id string) *raftv1.JobRecord {
	t.Helper()
	r, ok := w.state.View().Job(id)
	require.True(t, ok)
	return r
}

// What one job writes again of another one's output is not written again by a third.
func TestOneJobAtATimeSettlesTheCheckpointOfAnother(t *testing.T) {
	w := endedUnsettled(t)
	require.EqualValues(t, 21, fsm.LevelOf(beginning("k")))
	w.must(beginning("k"))
	w.must(of("k", newAttempt(1)))
	require.Equal(t, "a", string(get(t, w, "k").GetRestore().GetReplacements()[0].GetCommittable().GetPayload()), "what was written again before")
	w.rejected(fsm.ErrBeingSettled, beginning("l"))

	w.must(of("k", replaceAll(1, 1, replacement("b", 1))))
	w.must(of("k", fail(1, 5, true)))
	w.must(of("k", end("r", canceled)))
	w.must(of("k", result(goesOn, "the broker is still away")))
	w.must(beginning("l"))
	w.must(of("l", newAttempt(1)))
	require.Equal(t, "b", string(get(t, w, "l").GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
	w.must(of("l", start(1)))
	require.True(t, w.job().GetCheckpoints()[0].GetSettled())
	require.Nil(t, w.job().GetReplaced())

	w.must(beginning("m"))
	w.must(of("m", newAttempt(1)))
	require.True(t, get(t, w, "m").GetRestore().GetSettled(), "nobody is asked again")
}

func TestSavepointsAreSharedFreely(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"j", "k"} {
		r := record(id)
		r.From = &workerv1.RestorePoint{Metadata: checkpoint(1, 1).GetMetadata(), Checkpoint: 1, Savepoint: true, Settled: true}
		require.LessOrEqual(t, fsm.LevelOf(createRecord(r)), uint32(fsm.FirstLevel))
		w.must(createRecord(r))
	}
}
