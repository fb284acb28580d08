package driver_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
)

// rescale asks for n slots beside the test.
func (f *fixture) rescale(id string, n uint32) <-chan error {
	rec := f.record()
	g := proto.CloneOf(rec.GetGraph())
	g.GetVertices()[0].Parallelism, g.Fingerprint = n, "other"
	answer := make(chan error, 1)
	go func() {
		_, err := f.manager.Rescale(context.Background(), jobID, &raftv1.Rescale{RequestId: id, Graph: g, Parallelism: n, Base: rec.GetGraph().GetFingerprint()})
		answer <- err
	}()
	return answer
}

func (f *fixture) answered(c <-chan error) error {
	f.t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(10 * time.Second):
		require.FailNow(f.t, "no answer")
		return nil
	}
}

// committed takes a checkpoint of attempt 1 from its trigger to the acknowledgement of its commit.
func (f *fixture) committed(n uint64) {
	f.t.Helper()
	f.ack(n)
	f.eventually("the checkpoint is complete", func() bool {
		last, ok := fsm.LastCheckpoint(f.record())
		return ok && last.GetId() == n
	})
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
}

func TestARescaleBeginsAnAttemptFromACheckpointTakenForIt(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.committed(1)
	answer := f.rescale("r", 3)
	f.waitFor("trigger 2")
	require.EqualValues(t, 1, f.record().GetAttempt(), "the attempt runs on while its checkpoint is taken")
	f.ack(2)
	f.waitFor("complete 2")
	require.EqualValues(t, 1, f.record().GetAttempt(), "and until that is committed")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: 2}}})
	require.NoError(t, f.answered(answer))
	rec := f.record()
	require.EqualValues(t, 2, rec.GetAttempt())
	require.EqualValues(t, 2, rec.GetRestore().GetCheckpoint())
	require.Len(t, rec.GetPlacements(), 3)
	require.Len(t, rec.GetUnfenced(), 1)
	require.EqualValues(t, 1, rec.GetUnfenced()[0].GetSinks()[0].GetParallelism())
	f.waitFor("prepare 2")
	require.NoError(t, f.answered(f.rescale("r", 3)), "the same request again")
	require.EqualValues(t, 2, f.record().GetAttempt())
}

func TestARescaleWhoseCheckpointFailsChangesNothing(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.committed(1)
	answer := f.rescale("r", 3)
	f.waitFor("trigger 2")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{
		Checkpoint: 2, Vertex: "v", Reason: "storage is full",
	}}})
	err := f.answered(answer)
	require.ErrorIs(t, err, grpcerr.ErrRescaleFailed)
	require.ErrorContains(t, err, "storage is full")
	require.EqualValues(t, 1, f.record().GetAttempt())
	require.Nil(t, f.record().GetRescale())
	free, _ := f.manager.Slots()
	require.Equal(t, 3, free, "the slots are free again")
	require.ErrorIs(t, f.answered(f.rescale("r", 3)), grpcerr.ErrRescaleFailed, "the same request is not carried out later")
	require.EqualValues(t, 1, f.record().GetAttempt())
}

func TestARescaleTakesItsSlotsBeforeItStopsAnything(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.committed(1)
	err := f.answered(f.rescale("r", 5))
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	require.ErrorContains(t, err, "needs 5 slots, 4 free")
	require.Nil(t, fsm.RescaleOf(f.record(), "r"))
	answer := f.rescale("s", 4)
	f.waitFor("trigger 2")
	free, _ := f.manager.Slots()
	require.Zero(t, free)
	require.ErrorIs(t, f.answered(f.rescale("other", 2)), fsm.ErrRescaling)
	f.committed(2)
	require.NoError(t, f.answered(answer))
}

func TestAStopGoesBeforeARescale(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.committed(1)
	rescaled := f.rescale("r", 3)
	f.waitFor("trigger 2")
	stopped := make(chan error, 1)
	go func() { stopped <- f.manager.Stop(context.Background(), jobID, "stop", "") }()
	require.ErrorIs(t, f.answered(rescaled), grpcerr.ErrRescaleFailed)
	f.waitFor("trigger 3")
	require.ErrorIs(t, f.answered(f.rescale("s", 3)), fsm.ErrStopping)
	f.ack(3)
	require.NoError(t, f.answered(stopped))
	require.EqualValues(t, 1, f.record().GetGraph().GetVertices()[0].GetParallelism())
}

func TestASavepointAskedForDuringARescaleIsTakenByTheNextAttempt(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.committed(1)
	rescaled := f.rescale("r", 1)
	f.waitFor("trigger 2")
	saved := make(chan error, 1)
	go func() {
		_, _, err := f.manager.Savepoint(context.Background(), jobID, "p", "")
		saved <- err
	}()
	f.ack(2)
	f.waitFor("complete 2")
	_, _, _ = f.manager.Status(context.Background(), jobID) // the request is in the driver's hands
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: 2}}})
	require.NoError(t, f.answered(rescaled))
	select {
	case err := <-saved:
		require.NoError(t, err, "it belonged to the checkpoint of the rescale")
		return
	default:
	}
	f.waitFor("prepare 2")
	f.prepared(2)
	f.waitFor("start 2")
	f.event(2, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	f.eventually("the savepoint's checkpoint", func() bool { return f.sessions.hasPrefix("trigger 1") || f.sessions.hasPrefix("trigger 3") })
	select {
	case err := <-saved:
		require.FailNow(t, "answered too early", "%v", err)
	default:
	}
}

// A job that follows the slots waits a moment for a TaskManager that is only restarted, and goes on with fewer when it stays away.
func TestAnAutoJobWaitsAMomentForSlotsThatItHasLost(t *testing.T) {
	var planned atomic.Uint32
	tms := []registry.TaskManager{
		{ID: "tm1", Incarnation: "i1", Host: "h1", Slots: 1, Connected: true},
		{ID: "tm2", Incarnation: "i2", Host: "h2", Slots: 1, Connected: true},
	}
	auto := &raftv1.Rescale{RequestId: "auto", Parallelism: 2, Auto: true, Base: "2"}
	with := func(g *jobv1.Graph, n uint32) *jobv1.Graph {
		g = proto.CloneOf(g)
		g.Vertices[0].Parallelism, g.Fingerprint = n, fmt.Sprint(n)
		return g
	}
	f := setup{
		tms: tms,
		graph: func(g *jobv1.Graph) {
			g.Vertices[0].Parallelism, g.Fingerprint = 2, "2"
			auto.Graph = g
		},
		config: func(cfg *driver.Config) {
			cfg.AutoSettle = time.Hour
			cfg.Plan = func(_ context.Context, p *clusterv1.PlanJob) (*jobv1.Graph, error) {
				planned.Store(p.GetParallelism())
				return with(auto.GetGraph(), p.GetParallelism()), nil
			}
		},
		former: []*raftv1.Command{{Command: &raftv1.Command_RescaleJob{RescaleJob: &raftv1.RescaleJob{JobId: jobID, Rescale: auto}}}},
	}.begin(t)
	lose := func(attempt uint64, tm registry.TaskManager) {
		f.sessions.become(tms[0])
		tm.Connected = false
		f.manager.Lost(tm, "no sign of life", false)
		f.waitFor(fmt.Sprintf("kill %d", attempt))
		f.manager.WorkerExited(tms[0], &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, Expected: true})
		f.eventually("its slots are waited for", func() bool {
			p, _, _ := f.manager.Status(t.Context(), jobID)
			return strings.Contains(p.Explanation.Waiting(), "slots")
		})
	}
	f.waitFor("prepare 1")
	lose(1, tms[1])
	require.Never(t, func() bool { return planned.Load() != 0 }, 300*time.Millisecond, 10*time.Millisecond, "it has not waited")
	back := tms[1]
	back.Incarnation = "i3"
	f.sessions.become(tms[0], back)
	f.manager.Joined(back, nil)
	f.waitFor("prepare 2")
	require.Zero(t, planned.Load())
	require.Len(t, f.record().GetPlacements(), 2)
	lose(2, back)
	f.waitFor("prepare 3")
	require.EqualValues(t, 1, planned.Load())
	require.Len(t, f.record().GetPlacements(), 1)
}
