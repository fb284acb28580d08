package driver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// formerAttempt is an attempt of a former leader that has started.
func formerAttempt(n uint64, incarnation string) []*raftv1.Command {
	return []*raftv1.Command{
		{Command: &raftv1.Command_NewAttempt{NewAttempt: &raftv1.NewAttempt{JobId: jobID, Attempt: n, Placements: []*raftv1.Placement{
			{TaskmanagerId: theTM.ID, Incarnation: incarnation, Host: theTM.Host},
		}}}},
		{Command: &raftv1.Command_StartAttempt{StartAttempt: &raftv1.StartAttempt{JobId: jobID, Attempt: n}}},
	}
}

// pinnedCheckpoint is checkpoint 1 of a former leader's attempt 1, which it was about to export.
func pinnedCheckpoint() []*raftv1.Command {
	return append(formerAttempt(1, theTM.Incarnation),
		&raftv1.Command{Command: &raftv1.Command_ReserveCheckpointIds{ReserveCheckpointIds: &raftv1.ReserveCheckpointIDs{JobId: jobID, Limit: 10}}},
		&raftv1.Command{Command: &raftv1.Command_CompleteCheckpoint{CompleteCheckpoint: &raftv1.CompleteCheckpoint{
			JobId: jobID, Checkpoint: &raftv1.CompletedCheckpoint{Id: 1, Attempt: 1, Pinned: true, Metadata: &snapshotv1.Segment{Name: "m"}},
		}}},
	)
}

func TestANewLeaderLetsGoOfWhatTheFormerOneExported(t *testing.T) {
	f := newFixture(t, pinnedCheckpoint()...)
	f.eventually("the checkpoint is not pinned any more", func() bool {
		rec, _ := f.log.View().Job(jobID)
		return len(rec.GetCheckpoints()) == 1 && !rec.GetCheckpoints()[0].GetPinned()
	})
}

func TestAnEndedJobLetsGoOfWhatNobodyExports(t *testing.T) {
	canceled := jobv1.JobState_JOB_STATE_CANCELED
	f := newFixture(t, append(pinnedCheckpoint(),
		&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{JobId: jobID, Target: canceled}}},
		&raftv1.Command{Command: &raftv1.Command_RecordResult{RecordResult: &raftv1.RecordResult{JobId: jobID, State: canceled}}},
	)...)
	f.eventually("nothing is left of the checkpoint", func() bool {
		rec, _ := f.log.View().Job(jobID)
		return len(rec.GetCheckpoints()) == 0 && len(rec.GetGarbage()) == 0
	})
}

func TestASavepointRepeatedAfterALeaderChangeIsTakenOnce(t *testing.T) {
	dir := "file://" + t.TempDir()
	f := newFixture(t, formerAttempt(1, theTM.Incarnation)...)
	type answer struct {
		path string
		err  error
	}
	ask := func() <-chan answer {
		answered := make(chan answer, 1)
		go func() {
			path, _, err := f.manager.Savepoint(t.Context(), jobID, "sp", dir)
			answered <- answer{path, err}
		}()
		return answered
	}
	answers := []<-chan answer{ask(), ask()} // while the job is not even deployed
	f.waitFor("kill 1")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
	f.waitFor("prepare 2")
	f.prepared(2)
	f.waitFor("start 2")
	f.event(2, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	for n := uint64(1); n <= 2; n++ { // the first one is triggered before anything can be asked for
		f.waitFor(fmt.Sprintf("trigger %d", n))
		f.event(2, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
			Checkpoint: n, Handle: &snapshotv1.TaskHandle{Vertex: "v"},
		}}})
		f.waitFor(fmt.Sprintf("complete %d", n))
		f.event(2, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
	}
	paths := make(map[string]bool)
	for _, c := range append(answers, ask()) {
		select {
		case a := <-c:
			require.NoError(t, a.err)
			paths[a.path] = true
		case <-time.After(10 * time.Second):
			require.FailNow(t, "the savepoint is not answered")
		}
	}
	require.Len(t, paths, 1)
}

func TestASavepointIsRefusedWhenTheJobDoesNotComeUp(t *testing.T) {
	f := newFixture(t, formerAttempt(1, theTM.Incarnation)...)
	answered := make(chan error, 1)
	go func() {
		_, _, err := f.manager.Savepoint(t.Context(), jobID, "sp", "")
		answered <- err
	}()
	f.waitFor("kill 1")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
	f.waitFor("prepare 2")
	f.eventually("the request has arrived", func() bool { _, _, ok := f.manager.Status(t.Context(), jobID); return ok })
	f.event(2, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Message: "no such topic"}}})
	select {
	case err := <-answered:
		require.ErrorIs(t, err, grpcerr.ErrSavepointFailed)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the savepoint is not answered")
	}
}

func TestANewLeaderProvesAlsoOlderAttemptsDead(t *testing.T) {
	f := newFixture(t, append(formerAttempt(1, "i0"), formerAttempt(2, theTM.Incarnation)...)...)
	f.manager.Joined(theTM, nil)
	f.waitFor("prepare 3")
	f.prepared(3)
	f.waitFor("start 3")
	f.event(3, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	f.eventually("both attempts are fenced", func() bool {
		rec, _ := f.log.View().Job(jobID)
		return rec.GetStarted() && len(rec.GetUnfenced()) == 0
	})
}
