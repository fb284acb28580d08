package fsm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestClusterIDIsGivenOnce(t *testing.T) {
	w := newWorld(t)
	require.ErrorIs(t, w.apply(initCluster("")).Err, fsm.ErrInvalid)
	require.NoError(t, w.apply(initCluster("c1")).Err)
	w.repeated(initCluster("c2"))
	require.Equal(t, "c1", w.state.View().ClusterID())
}

func TestMembersAreKeptByID(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"b", "c", "a"} {
		require.NoError(t, w.apply(member(id, 17)).Err)
	}
	before := w.state.View()
	require.NoError(t, w.apply(member("b", 18)).Err)
	require.Equal(t, uint32(17), before.Members()[1].GetLevel(), "a view taken before stays what it was")
	w.repeated(member("b", 18))
	w.rejected(fsm.ErrInvalid, member("", 1))
	var got []string
	for _, m := range w.state.View().Members() {
		got = append(got, fmt.Sprint(m.GetId(), m.GetLevel()))
	}
	require.Equal(t, []string{"a17", "b18", "c17"}, got)
}

func TestCreateKeepsTheDefinitionOnly(t *testing.T) {
	w := newWorld(t)
	given := record("j")
	given.State, given.Attempt, given.Started = finished, 9, true
	given.NextCheckpoint = 400
	r := w.must(createRecord(given))
	require.Equal(t, created, r.GetState())
	require.Zero(t, r.GetAttempt())
	require.False(t, r.GetStarted())
	require.Equal(t, uint64(1), r.GetNextCheckpoint())
	require.Equal(t, int64(17), r.GetCreatedAtMs())
}

func TestCreateIsIdempotentByRequestID(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	again := record("other")
	again.RequestId = "create-j"
	require.Equal(t, "j", w.repeated(createRecord(again)).Job.GetId())

	w.must(end("", canceled))
	w.must(result(canceled, ""))
	require.Equal(t, "j", w.repeated(createRecord(again)).Job.GetId(), "also after the job has ended")
}

func TestCreateWithoutRequestIDIsNeverARepetition(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"j", "k"} {
		r := record(id)
		r.RequestId = ""
		w.must(createRecord(r))
	}
}

func TestCreateRefusesIncompleteJobs(t *testing.T) {
	w := newWorld(t)
	for _, spoil := range []func(*raftv1.JobRecord){
		func(r *raftv1.JobRecord) { r.Id = "" },
		func(r *raftv1.JobRecord) { r.Name = "" },
		func(r *raftv1.JobRecord) { r.Graph = nil },
	} {
		r := record("j")
		spoil(r)
		w.rejected(fsm.ErrInvalid, createRecord(r))
	}
	w.rejected(fsm.ErrInvalid, createRecord(nil))
}

func TestNameIsUniqueAmongLiveJobs(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	twin := record("twin")
	twin.Name = "name-j"
	require.ErrorContains(t, w.rejected(fsm.ErrNameTaken, createRecord(twin)).Err, "whose id is j")

	w.must(end("", canceled))
	w.rejected(fsm.ErrNameTaken, createRecord(twin))
	w.must(result(canceled, ""))
	w.must(createRecord(twin))
	live, ok := w.state.View().Live("name-j")
	require.True(t, ok)
	require.Equal(t, "twin", live.GetId())
}

func TestJobIDIsUnique(t *testing.T) {
	w := newWorld(t)
	w.must(create("j"))
	twin := record("j")
	twin.RequestId, twin.Name = "another", "another"
	w.rejected(fsm.ErrJobExists, createRecord(twin))
}

func TestCommandsForUnknownJobs(t *testing.T) {
	w := newWorld(t)
	for _, cmd := range everyJobCommand() {
		w.rejected(fsm.ErrUnknownJob, cmd)
	}
}

// everyJobCommand returns one of each command about an existing job.
func everyJobCommand() []*raftv1.Command {
	return []*raftv1.Command{
		newAttempt(1), start(1), fail(1, 0, true), completed(1, 1), settled(1), reserve(10), end("e", canceled),
		result(canceled, ""), dropGarbage(1), fenced(1), requestStop("s", ""), clearStop(""), pin(1, true),
		savepoint(&raftv1.Savepoint{RequestId: "p"}), forget("j"),
	}
}

func TestEndBarsCompletionsAndRemembersTheReason(t *testing.T) {
	w := runningWorld(t)
	r := w.must(end("e", canceled))
	require.Equal(t, settling, r.GetState())
	require.Equal(t, canceled, r.GetTarget())
	require.Equal(t, "why", r.GetFailures()[0].GetMessage())
	w.rejected(fsm.ErrJobEnding, completed(1, 1))
	w.rejected(fsm.ErrJobEnding, reserve(2000))
	w.rejected(fsm.ErrJobEnding, requestStop("s", ""))
	w.rejected(fsm.ErrJobEnding, newAttempt(2))
}

func TestEndIsIdempotentByRequestID(t *testing.T) {
	w := runningWorld(t)
	w.must(end("e", canceled))
	w.repeated(end("e", canceled))
	require.ErrorContains(t, w.rejected(fsm.ErrJobEnding, end("other", failed)).Err, "canceled")
	w.rejected(fsm.ErrJobEnding, end("", failed))
	w.must(result(goesOn, ""))
	w.repeated(end("e", canceled))
	w.rejected(fsm.ErrJobEnded, end("other", canceled))
}

func TestEndRefusesAStateThatIsNoEnd(t *testing.T) {
	w := runningWorld(t)
	for _, state := range []jobv1.JobState{goesOn, created, deploying, running, restarting, settling} {
		w.rejected(fsm.ErrInvalid, end("e", state))
	}
}

func TestResultNeedsAnEndingJob(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrNotEnding, result(canceled, ""))
	w.must(end("e", canceled))
	w.rejected(fsm.ErrInvalid, result(running, ""))
	r := w.must(result(goesOn, ""))
	require.Equal(t, canceled, r.GetState(), "without a state it is the target")
	require.Equal(t, int64(99), r.GetEndedAtMs())
	require.Empty(t, r.GetToken())
	require.Empty(t, r.GetPlacements())
	w.repeated(result(canceled, ""))
	w.rejected(fsm.ErrJobEnded, result(failed, ""))
}

func TestResultMayDifferFromTheTarget(t *testing.T) {
	w := runningWorld(t)
	w.must(end("e", stopped))
	require.Equal(t, failed, w.must(result(failed, "")).GetState())
}

func TestUnsettledResultKeepsWhatSettlingNeeds(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	w.must(end("e", canceled))
	r := w.must(result(goesOn, "broker gone"))
	require.Equal(t, "broker gone", r.GetUnsettled())
	require.Equal(t, []uint64{5}, ids(r.GetCheckpoints()))
	requireEqualProto(t, &workerv1.FencedAttempt{Attempt: 1, Sinks: extents()}, r.GetUnfenced()[0])
}

func TestEndedJobsKeepOrDropTheirLastCheckpoint(t *testing.T) {
	for state, kept := range map[jobv1.JobState][]uint64{failed: {6}, stopped: {6}, canceled: nil, finished: nil} {
		w := runningWorld(t)
		w.must(completed(1, 5))
		w.must(completed(1, 6))
		w.must(end("e", state))
		require.Equal(t, []uint64{5, 6}, ids(w.job().GetCheckpoints()), "nothing is dropped before the result")
		r := w.must(result(goesOn, ""))
		require.Equal(t, kept, ids(r.GetCheckpoints()), state)
		require.Len(t, append(r.GetGarbage(), r.GetCheckpoints()...), 2, state)
	}
}

func TestStopIsIdempotentByRequestID(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrInvalid, requestStop("", ""))
	r := w.must(requestStop("s", "file:///sp"))
	require.Equal(t, running, r.GetState())
	require.Equal(t, "file:///sp", r.GetStopSavepointDir())
	w.repeated(requestStop("s", "file:///sp"))
	w.rejected(fsm.ErrStopping, requestStop("other", ""))
	w.must(end("", stopped))
	w.repeated(requestStop("s", "file:///sp"))
	w.must(result(goesOn, ""))
	w.repeated(requestStop("s", "file:///sp"))
	w.rejected(fsm.ErrJobEnded, requestStop("other", ""))
}

func TestClearedStopIsNotCarriedOutAgain(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrNotStopping, clearStop("no"))
	w.must(requestStop("s", "file:///sp"))
	r := w.must(clearStop("no write permission"))
	require.Empty(t, r.GetStopRequestId())
	require.Empty(t, r.GetStopSavepointDir())
	requireEqualProto(t, &raftv1.Savepoint{RequestId: "s", Error: "no write permission"}, r.GetSavepoints()[0])
	w.repeated(requestStop("s", "file:///sp"))
	w.must(requestStop("s2", ""))
}

func TestClearStopComesTooLateForAnEndingJob(t *testing.T) {
	w := runningWorld(t)
	w.must(requestStop("s", ""))
	w.must(end("", stopped))
	w.rejected(fsm.ErrJobEnding, clearStop("no"))
}

func TestFirstOutcomeOfASavepointStays(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrInvalid, savepoint(&raftv1.Savepoint{}))
	w.must(savepoint(&raftv1.Savepoint{RequestId: "p", Path: "file:///p"}))
	w.repeated(savepoint(&raftv1.Savepoint{RequestId: "p", Error: "second try failed"}))
	w.must(requestStop("s", "dir"))
	w.must(savepoint(&raftv1.Savepoint{RequestId: "s", Error: "disk full"}))
	w.must(clearStop("savepoint failed"))
	require.Len(t, w.job().GetSavepoints(), 2)
	require.Equal(t, "disk full", w.job().GetSavepoints()[1].GetError())
}

func TestHistoriesAreBounded(t *testing.T) {
	w := runningWorld(t)
	for i := range 130 {
		w.must(savepoint(&raftv1.Savepoint{RequestId: fmt.Sprint(i)}))
	}
	require.Len(t, w.job().GetSavepoints(), 100)
	require.Equal(t, "129", w.job().GetSavepoints()[99].GetRequestId())
	for n := uint64(1); n <= 30; n++ {
		if n > 1 {
			w.must(newAttempt(n))
		}
		w.must(fail(n, int64(n), true))
	}
	require.Len(t, w.job().GetFailures(), 20)
	require.Equal(t, uint64(30), w.job().GetFailures()[19].GetAttempt())
}

func TestForgetTakesEndedJobsOnly(t *testing.T) {
	w := runningWorld(t)
	w.must(create("k"))
	w.must(completed(1, 5))
	w.rejected(fsm.ErrJobLive, forget("j"))
	w.must(end("e", canceled))
	w.rejected(fsm.ErrJobLive, forget("j"))
	w.must(result(goesOn, ""))
	w.rejected(fsm.ErrGarbageLeft, forget("j"))
	w.must(dropGarbage(5))
	before := w.state.View()
	w.must(forget("j"))
	_, ok := w.state.View().Job("j")
	require.False(t, ok)
	_, ok = w.state.View().Job("k")
	require.True(t, ok)
	require.Len(t, before.Jobs(), 2, "a view taken before stays what it was")
	w.rejected(fsm.ErrUnknownJob, forget("j"))
}

func TestUnknownCommandPanicsWithAWayOut(t *testing.T) {
	w := newWorld(t)
	cmd := &raftv1.Command{}
	cmd.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), nil))
	require.PanicsWithValue(t, fmt.Sprintf("fsm: log entry 1 holds command 99, and this program knows commands up to %d only: "+
		"it is older than the leader that wrote the entry and must be upgraded", fsm.Level), func() { w.apply(cmd) })
}

func TestLevelIsTheHighestCommandNumber(t *testing.T) {
	highest := 0
	fields := (&raftv1.Command{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		highest = max(highest, int(fields.Get(i).Number()))
	}
	require.Equal(t, fsm.Level, highest)
}
