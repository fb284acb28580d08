package fsm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"google.golang.org/protobuf/proto"
)

const (
	created    = jobv1.JobState_JOB_STATE_CREATED
	deploying  = jobv1.JobState_JOB_STATE_DEPLOYING
	running    = jobv1.JobState_JOB_STATE_RUNNING
	restarting = jobv1.JobState_JOB_STATE_RESTARTING
	settling   = jobv1.JobState_JOB_STATE_SETTLING
	finished   = jobv1.JobState_JOB_STATE_FINISHED
	failed     = jobv1.JobState_JOB_STATE_FAILED
	canceled   = jobv1.JobState_JOB_STATE_CANCELED
	stopped    = jobv1.JobState_JOB_STATE_STOPPED
	goesOn     = jobv1.JobState_JOB_STATE_UNSPECIFIED
)

// world is a state machine with shorthand for its commands. Most tests are about the job "j".
type world struct {
	t     *testing.T
	state fsm.State
	index uint64
	log   []*raftv1.Command
}

func newWorld(t *testing.T) *world { return &world{t: t} }

// runningWorld has job "j" running in attempt 1 with ids reserved below 1000.
func runningWorld(t *testing.T) *world {
	w := newWorld(t)
	w.must(create("j"))
	w.must(reserve(1000))
	w.must(newAttempt(1))
	w.must(start(1))
	return w
}

func (w *world) apply(cmd *raftv1.Command) fsm.Result {
	w.index++
	w.log = append(w.log, proto.CloneOf(cmd))
	return w.state.Apply(w.index, cmd)
}

func (w *world) must(cmd *raftv1.Command) *raftv1.JobRecord {
	w.t.Helper()
	res := w.apply(cmd)
	require.NoError(w.t, res.Err)
	require.False(w.t, res.Repeated)
	return res.Job
}

// rejected applies a command that must change nothing.
func (w *world) rejected(want error, cmd *raftv1.Command) fsm.Result {
	w.t.Helper()
	before := w.state.Snapshot()
	res := w.apply(cmd)
	require.ErrorIs(w.t, res.Err, want)
	requireEqualProto(w.t, before, w.state.Snapshot())
	return res
}

// repeated applies a command that has been carried out before.
func (w *world) repeated(cmd *raftv1.Command) fsm.Result {
	w.t.Helper()
	before := w.state.Snapshot()
	res := w.apply(cmd)
	require.NoError(w.t, res.Err)
	require.True(w.t, res.Repeated)
	requireEqualProto(w.t, before, w.state.Snapshot())
	return res
}

func (w *world) job() *raftv1.JobRecord {
	w.t.Helper()
	r, ok := w.state.View().Job("j")
	require.True(w.t, ok)
	return r
}

func ids(cps []*raftv1.CompletedCheckpoint) []uint64 {
	var ids []uint64
	for _, cp := range cps {
		ids = append(ids, cp.GetId())
	}
	return ids
}

func testGraph() *jobv1.Graph {
	return &jobv1.Graph{
		Vertices: []*jobv1.Vertex{
			{Id: "in", Parallelism: 2, Source: true, Operators: []*jobv1.Operator{{Uid: "in"}}},
			{Id: "agg", Parallelism: 3, Operators: []*jobv1.Operator{
				{Uid: "agg", Stateful: true}, {Uid: "out", TransactionSlots: 7}, {Uid: "audit", TransactionSlots: 4},
			}},
		},
		Checkpoints: &jobv1.CheckpointConfig{Enabled: true, Retained: 3},
		Restarts:    &jobv1.RestartPolicy{MaxRestarts: 2},
	}
}

func record(id string) *raftv1.JobRecord {
	return &raftv1.JobRecord{Id: id, RequestId: "create-" + id, Name: "name-" + id, Graph: testGraph(), CreatedAtMs: 17}
}

func create(id string) *raftv1.Command { return createRecord(record(id)) }

func createRecord(r *raftv1.JobRecord) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: r}}}
}

func attempt(c *raftv1.NewAttempt) *raftv1.Command {
	c.JobId = "j"
	c.Token = fmt.Sprintf("token-%d", c.GetAttempt())
	c.Placements = []*raftv1.Placement{{TaskmanagerId: "a", Incarnation: "i", Host: "h"}}
	return &raftv1.Command{Command: &raftv1.Command_NewAttempt{NewAttempt: c}}
}

func newAttempt(n uint64) *raftv1.Command { return attempt(&raftv1.NewAttempt{Attempt: n}) }

func settlingAttempt(n uint64) *raftv1.Command {
	return attempt(&raftv1.NewAttempt{Attempt: n, SettleOnly: true})
}

func start(n uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_StartAttempt{
		StartAttempt: &raftv1.StartAttempt{JobId: "j", Attempt: n, RecoveryMs: 250},
	}}
}

func fail(n uint64, atMs int64, counted bool) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_FailAttempt{FailAttempt: &raftv1.FailAttempt{
		JobId: "j", Attempt: n, Counted: counted, Failure: &jobv1.Failure{AtMs: atMs, Attempt: n, Message: "boom"},
	}}}
}

func checkpoint(attempt, id uint64, origins ...uint64) *raftv1.CompletedCheckpoint {
	return &raftv1.CompletedCheckpoint{
		Id: id, Attempt: attempt, Origins: append(origins, id), Committables: 2,
		Metadata: &snapshotv1.Segment{Name: fmt.Sprintf("checkpoints/%d", id), Size: 10, Crc32C: 5},
	}
}

func complete(cp *raftv1.CompletedCheckpoint, target jobv1.JobState) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_CompleteCheckpoint{
		CompleteCheckpoint: &raftv1.CompleteCheckpoint{JobId: "j", Checkpoint: cp, Target: target},
	}}
}

func completed(attempt, id uint64, origins ...uint64) *raftv1.Command {
	return complete(checkpoint(attempt, id, origins...), goesOn)
}

func settled(id uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_SettleCheckpoint{
		SettleCheckpoint: &raftv1.SettleCheckpoint{JobId: "j", Checkpoint: id},
	}}
}

func reserve(limit uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_ReserveCheckpointIds{
		ReserveCheckpointIds: &raftv1.ReserveCheckpointIDs{JobId: "j", Limit: limit},
	}}
}

func end(requestID string, target jobv1.JobState) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{
		JobId: "j", RequestId: requestID, Target: target, Failure: &jobv1.Failure{Message: "why"},
	}}}
}

func result(state jobv1.JobState, unsettled string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RecordResult{
		RecordResult: &raftv1.RecordResult{JobId: "j", State: state, AtMs: 99, Unsettled: unsettled},
	}}
}

func dropGarbage(ids ...uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_DropGarbage{DropGarbage: &raftv1.DropGarbage{JobId: "j", Checkpoints: ids}}}
}

func fenced(attempts ...uint64) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_FencedAttempts{
		FencedAttempts: &raftv1.FencedAttempts{JobId: "j", Attempts: attempts},
	}}
}

func requestStop(requestID, dir string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RequestStop{
		RequestStop: &raftv1.RequestStop{JobId: "j", RequestId: requestID, SavepointDir: dir},
	}}
}

func clearStop(reason string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_ClearStop{ClearStop: &raftv1.ClearStop{JobId: "j", Error: reason}}}
}

func pin(id uint64, pinned bool) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_PinCheckpoint{
		PinCheckpoint: &raftv1.PinCheckpoint{JobId: "j", Checkpoint: id, Pinned: pinned},
	}}
}

func savepoint(sp *raftv1.Savepoint) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RecordSavepoint{
		RecordSavepoint: &raftv1.RecordSavepoint{JobId: "j", Savepoint: sp},
	}}
}

func member(id string, level uint32) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_MemberLevel{
		MemberLevel: &raftv1.MemberLevel{Id: id, Address: id + ":1", Level: level},
	}}
}

func forget(id string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_ForgetJob{ForgetJob: &raftv1.ForgetJob{JobId: id}}}
}

func initCluster(id string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_InitCluster{InitCluster: &raftv1.InitCluster{ClusterId: id}}}
}

func extents() []*workerv1.SinkExtent {
	return []*workerv1.SinkExtent{{Uid: "out", Parallelism: 3, Slots: 7}, {Uid: "audit", Parallelism: 3, Slots: 4}}
}
