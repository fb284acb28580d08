package driver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// completion is checkpoint 3 of a former leader's attempt 1.
func completion(t *testing.T) []*raftv1.Command {
	return append(formerAttempt(1, theTM.Incarnation),
		&raftv1.Command{Command: &raftv1.Command_ReserveCheckpointIds{ReserveCheckpointIds: &raftv1.ReserveCheckpointIDs{JobId: jobID, Limit: 10}}},
		&raftv1.Command{Command: &raftv1.Command_CompleteCheckpoint{CompleteCheckpoint: &raftv1.CompleteCheckpoint{
			JobId: jobID, Checkpoint: &raftv1.CompletedCheckpoint{Id: 3, Attempt: 1, Committables: 1, Metadata: &snapshotv1.Segment{Name: t.Name()}},
		}}},
	)
}

// back is what theTM tells of the worker of attempt 1.
func back(started bool) []*clusterv1.RunningAttempt {
	return []*clusterv1.RunningAttempt{{
		JobId: jobID, Attempt: 1, Tasks: []*workerv1.TaskAssignment{{Vertex: "v"}}, DataAddress: "a:1", Started: started,
	}}
}

func (f *fixture) started(attempt uint64) {
	f.event(attempt, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
}

func (f *fixture) record() *raftv1.JobRecord {
	rec, _ := f.log.View().Job(jobID)
	return rec
}

func (f *fixture) requireNoRestart() {
	f.t.Helper()
	require.EqualValues(f.t, 1, f.record().GetAttempt())
	require.False(f.t, f.sessions.hasPrefix("kill"))
	require.False(f.t, f.sessions.hasPrefix("prepare"))
}

func TestANewLeaderGoesOnWithWhatRuns(t *testing.T) {
	f := newFixture(t, completion(t)...)
	require.Empty(t, f.manager.Stale(back(true)), "the attempt is wanted")
	require.Len(t, f.manager.Stale([]*clusterv1.RunningAttempt{{JobId: jobID, Attempt: 2}, {JobId: "other", Attempt: 1}}), 2)
	free, _ := f.manager.Slots()
	require.Equal(t, theTM.Slots-1, free, "nobody else gets the slot")
	f.manager.Joined(theTM, back(true))
	f.waitFor("trigger 10")
	f.sessions.mu.Lock()
	sent := slices.Clone(f.sessions.sent)
	f.sessions.mu.Unlock()
	require.Equal(t, []string{"complete 3", "abort 9", "resume", "complete 3", "trigger 10"}, sent)
	f.ack(10)
	f.waitFor("complete 10")
	f.requireNoRestart()
}

// unreadable is completion with a metadata file that storage has trouble with.
func unreadable(t *testing.T) []*raftv1.Command {
	cmds := completion(t)
	cmds[len(cmds)-1].GetCompleteCheckpoint().GetCheckpoint().GetMetadata().Name = strings.Repeat("x", 300)
	return cmds
}

func TestATakeoverThatWaitsForStorageTellsWhatIsCompleted(t *testing.T) {
	f := newFixture(t, unreadable(t)...)
	f.manager.Joined(theTM, back(true))
	f.waitFor("complete 3")
	f.pass(2 * grace)
	require.False(t, f.sessions.hasPrefix("trigger"))
	f.requireNoRestart()
}

func TestATakeoverThatWaitsForStorageNoticesThatAWorkerIsGone(t *testing.T) {
	f := newFixture(t, unreadable(t)...)
	f.manager.Joined(theTM, back(true))
	f.pass(2 * grace)
	f.manager.Interrupted(theTM)
	f.manager.Resumed(theTM, nil)
	f.waitFor("prepare 2")
}

// pass lets a span of time pass in which nothing happens.
func (f *fixture) pass(span time.Duration) {
	end := time.Now().Add(span)
	f.eventually("time passes", func() bool { return time.Now().After(end) })
}

func TestANewLeaderStartsWhatTheFormerOneDidNotGetToStart(t *testing.T) {
	f := newFixture(t, formerAttempt(1, theTM.Incarnation)...)
	f.manager.Joined(theTM, back(false))
	f.waitFor("start 1")
	require.False(t, f.sessions.hasPrefix("trigger"))
	f.started(1)
	f.waitFor("trigger 1")
	f.requireNoRestart()
}

func TestAStartOfAnAttemptThatIsNotInTheLogIsNotTakenOver(t *testing.T) {
	f := newFixture(t, formerAttempt(1, theTM.Incarnation)[0])
	require.Len(t, f.manager.Stale(back(true)), 1)
	f.manager.Joined(theTM, back(true))
	f.waitFor("kill 1")
}

func TestATaskThatIsGoneAfterALeaderChangeRestartsItsJob(t *testing.T) {
	other := theTM
	other.Incarnation = "i2"
	strange := back(true)
	strange[0].Tasks[0].Subtask = 1
	for name, test := range map[string]struct {
		come func(*fixture)
		why  string
	}{
		"the worker died":               {func(f *fixture) { f.manager.Joined(theTM, nil) }, "worker process on h1 (tm1) ended while its TaskManager was out of sight"},
		"another worker":                {func(f *fixture) { f.manager.Joined(theTM, strange) }, "TaskManager tm1 on h1 reports a worker that is not the one of this attempt"},
		"the TaskManager was restarted": {func(f *fixture) { f.sessions.become(other); f.manager.Joined(other, nil) }, "TaskManager tm1 on h1 was started anew while there was no leader"},
		"the TaskManager does not come": {func(*fixture) {}, "TaskManager tm1 on h1 did not come back to the new leader within 200ms"},
		"the TaskManager shuts down":    {func(f *fixture) { f.manager.Joined(theTM, back(true)); f.manager.Leaving(theTM) }, "TaskManager tm1 on h1 shuts down"},
		"the TaskManager is lost again": {func(f *fixture) {
			f.manager.Joined(theTM, back(true))
			f.manager.Lost(theTM, "silent", false)
			f.manager.Joined(theTM, nil)
		}, "TaskManager tm1 on h1 is lost: silent"},
		"the worker says why it died":    {func(f *fixture) { f.manager.Joined(theTM, nil); f.dies(1, "out of cheese") }, "out of cheese"},
		"the session breaks and it dies": {func(f *fixture) { f.manager.Interrupted(theTM); f.manager.Resumed(theTM, nil) }, "worker process on h1 (tm1) ended while its TaskManager was out of sight"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, completion(t)...)
			test.come(f)
			f.eventually("the next attempt begins", func() bool {
				if f.sessions.has("kill 1") {
					f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
				}
				return f.sessions.has("prepare 2")
			})
			require.EqualValues(t, 3, f.record().GetRestore().GetCheckpoint())
			failures := f.record().GetFailures()
			require.NotEmpty(t, failures)
			require.Contains(t, failures[len(failures)-1].GetMessage(), test.why)
		})
	}
}

func (f *fixture) dies(attempt uint64, why string) {
	f.event(attempt, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Message: why}}})
}

func TestAJobThatEndsIsNotTakenOver(t *testing.T) {
	f := newFixture(t, append(completion(t), &raftv1.Command{Command: &raftv1.Command_EndJob{
		EndJob: &raftv1.EndJob{JobId: jobID, Target: jobv1.JobState_JOB_STATE_CANCELED},
	}})...)
	require.Len(t, f.manager.Stale(back(true)), 1)
	f.manager.Joined(theTM, back(true))
	f.waitFor("kill 1")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
	f.waitFor("prepare 2")
	require.True(t, f.record().GetSettlingAttempt())
	require.False(t, f.sessions.hasPrefix("complete"))
}

func TestAStopGoesOnAfterALeaderChange(t *testing.T) {
	f := newFixture(t, append(completion(t), &raftv1.Command{Command: &raftv1.Command_RequestStop{
		RequestStop: &raftv1.RequestStop{JobId: jobID, RequestId: "stop"},
	}})...)
	f.manager.Joined(theTM, back(true))
	f.waitFor("trigger 10")
	require.False(t, f.sessions.has("resume"), "the sources may wait already")
	answered := make(chan error, 1)
	go func() { answered <- f.manager.Stop(t.Context(), jobID, "stop", "") }()
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
		Checkpoint: 10, Handle: &snapshotv1.TaskHandle{Vertex: "v"},
	}}})
	f.waitFor("complete 10")
	select {
	case err := <-answered:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the stop is not answered")
	}
	require.Equal(t, jobv1.JobState_JOB_STATE_STOPPED, f.record().GetTarget())
}

func TestTheEndOfTheInputIsKnownAfterALeaderChange(t *testing.T) {
	f := newFixture(t, completion(t)...)
	ended := back(true)
	ended[0].InputEnded = true
	f.manager.Joined(theTM, ended)
	f.waitFor("trigger 10")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
		Checkpoint: 10, Handle: &snapshotv1.TaskHandle{Vertex: "v", Ended: true},
	}}})
	f.eventually("the job has finished its input", func() bool { return f.record().GetTarget() == jobv1.JobState_JOB_STATE_FINISHED })
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
	answers := []<-chan answer{ask(), ask()} // while nobody knows whether the job runs
	f.manager.Joined(theTM, back(true))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for n := uint64(1); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if !f.sessions.has(fmt.Sprintf("trigger %d", n)) {
				continue
			}
			f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
				Checkpoint: n, Handle: &snapshotv1.TaskHandle{Vertex: "v"},
			}}})
			f.event(1, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: n}}})
			n++
		}
	}()
	go func() {
		for n := uint64(1); ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if f.sessions.has(fmt.Sprintf("complete %d", n)) {
				f.event(1, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: n}}})
				n++
			}
		}
	}()
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
	f.eventually("the request has arrived", func() bool { _, _, ok := f.manager.Status(t.Context(), jobID); return ok })
	select { // when the grace is over
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
