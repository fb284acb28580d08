package fsm_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// graphOf is the test's graph with each parallelism set to n.
func graphOf(n uint32) *jobv1.Graph {
	g := testGraph()
	for _, v := range g.GetVertices() {
		v.Parallelism = n
	}
	g.Fingerprint = fmt.Sprint("parallelism ", n)
	return g
}

func rescale(c *raftv1.Rescale) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RescaleJob{RescaleJob: &raftv1.RescaleJob{JobId: "j", Rescale: c}}}
}

func rescaleTo(requestID string, n uint32) *raftv1.Command {
	return rescale(&raftv1.Rescale{RequestId: requestID, Graph: graphOf(n), Parallelism: n, AtMs: 7})
}

func rescaleFailed(requestID, reason string) *raftv1.Command {
	return &raftv1.Command{Command: &raftv1.Command_RescaleJob{RescaleJob: &raftv1.RescaleJob{
		JobId: "j", FailedRequestId: requestID, Error: reason, AtMs: 8,
	}}}
}

// onSlots is newAttempt with as many placements.
func onSlots(n uint64, slots int) *raftv1.Command {
	cmd := newAttempt(n)
	a := cmd.GetNewAttempt()
	for i := 1; i < slots; i++ {
		a.Placements = append(a.Placements, &raftv1.Placement{Slot: uint32(i), TaskmanagerId: "a", Incarnation: "i"})
	}
	return cmd
}

func TestRescaleCountsFromTheNextAttemptOn(t *testing.T) {
	w := runningWorld(t)
	w.must(completed(1, 5))
	r := w.must(rescaleTo("r", 4))
	requireEqualProto(t, testGraph(), r.GetGraph())
	require.Equal(t, running, r.GetState(), "the present attempt goes on")
	require.EqualValues(t, 4, fsm.Slots(fsm.Next(r)))
	w.must(completed(1, 6))

	w.rejected(fsm.ErrInvalid, onSlots(2, 3))
	r = w.must(onSlots(2, 4))
	requireEqualProto(t, graphOf(4), r.GetGraph())
	require.EqualValues(t, 4, r.GetParallelism())
	require.EqualValues(t, 6, r.GetRestore().GetCheckpoint())
	require.Nil(t, r.GetRescale())
	require.Zero(t, r.GetRestarts(), "nothing has failed")
	requireEqualProto(t, &workerv1.FencedAttempt{Attempt: 1, Sinks: extents()}, r.GetUnfenced()[0])
	requireEqualProto(t, &raftv1.RescaleOutcome{RequestId: "r", Attempt: 2, From: 3, To: 4, AtMs: 7}, fsm.RescaleOf(r, "r"))
	w.repeated(rescaleTo("r", 4))

	w.must(start(2))
	r = w.must(newAttempt(3))
	require.EqualValues(t, 4, r.GetUnfenced()[1].GetSinks()[0].GetParallelism(), "each attempt is fenced by the graph that it ran with")
	require.EqualValues(t, 1, r.GetRestarts())
}

func TestRescaleGoesWithTheRestartAfterAFailure(t *testing.T) {
	w := runningWorld(t)
	w.must(rescaleTo("r", 1))
	w.must(fail(1, 5, true))
	r := w.must(onSlots(2, 1))
	require.EqualValues(t, 1, fsm.Slots(r.GetGraph()))
	require.EqualValues(t, 1, r.GetRestarts(), "the failure was one")
}

func TestRescaleIsRefused(t *testing.T) {
	w := runningWorld(t)
	w.rejected(fsm.ErrInvalid, rescaleTo("", 4))
	w.rejected(fsm.ErrInvalid, rescale(&raftv1.Rescale{RequestId: "r"}))
	other := graphOf(4)
	other.MaxParallelism = 7
	w.rejected(fsm.ErrInvalid, rescale(&raftv1.Rescale{RequestId: "r", Graph: other}))
	w.rejected(fsm.ErrRescaled, rescale(&raftv1.Rescale{RequestId: "r", Graph: graphOf(4), Base: "another"}))
	w.must(rescaleTo("r", 4))
	w.repeated(rescaleTo("r", 4))
	w.rejected(fsm.ErrRescaling, rescaleTo("s", 5))
	w.must(requestStop("stop", ""))
	require.NotEmpty(t, fsm.RescaleOf(w.job(), "r").GetError(), "a stop goes before it")
	w.rejected(fsm.ErrStopping, rescaleTo("s", 5))
	w.must(clearStop("no"))
	w.must(rescaleTo("s", 5))
	w.must(end("e", canceled))
	require.NotEmpty(t, fsm.RescaleOf(w.job(), "s").GetError())
	w.rejected(fsm.ErrJobEnding, rescaleTo("t", 5))
}

func TestFailedRescaleLeavesTheJobAsItWas(t *testing.T) {
	w := runningWorld(t)
	before := proto.CloneOf(w.job())
	w.must(rescaleTo("r", 4))
	w.repeated(rescaleFailed("other", "no"))
	r := w.must(rescaleFailed("r", "no checkpoint"))
	require.Equal(t, "no checkpoint", fsm.RescaleOf(r, "r").GetError())
	r = proto.CloneOf(r)
	r.Rescales = nil
	requireEqualProto(t, before, r)
	w.repeated(rescaleFailed("r", "again"))
	w.repeated(rescaleTo("r", 4))
	require.Nil(t, w.job().GetRescale(), "a request that failed is not carried out later")
}

func TestSettingsOfTheSameGraphCountAtOnce(t *testing.T) {
	w := runningWorld(t)
	r := w.must(rescale(&raftv1.Rescale{
		RequestId: "r", Graph: testGraph(), Parallelism: 3, Auto: true, Operators: map[string]uint32{"agg": 3},
	}))
	require.Nil(t, r.GetRescale())
	require.True(t, r.GetAutoParallelism())
	require.Equal(t, map[string]uint32{"agg": 3}, r.GetOperatorParallelism())
	require.EqualValues(t, 1, fsm.RescaleOf(r, "r").GetAttempt())
}

func TestSettlingAttemptKeepsTheGraph(t *testing.T) {
	w := runningWorld(t)
	w.must(rescaleTo("r", 4))
	w.must(end("e", canceled))
	requireEqualProto(t, testGraph(), w.must(settlingAttempt(2)).GetGraph())
}

func TestParallelismOfOperatorsNeedsALevel(t *testing.T) {
	job := record("j")
	require.LessOrEqual(t, fsm.LevelOf(createRecord(job)), uint32(fsm.FirstLevel))
	job.OperatorParallelism = map[string]uint32{"agg": 2}
	require.EqualValues(t, 22, fsm.LevelOf(createRecord(job)))
	job = record("j")
	job.AutoParallelism = true
	require.EqualValues(t, 22, fsm.LevelOf(createRecord(job)))
	require.EqualValues(t, 22, fsm.LevelOf(rescaleTo("r", 4)))
}
