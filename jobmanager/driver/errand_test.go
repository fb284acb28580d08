package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// endedUnsettled is a job that was canceled with transactions of checkpoint 3 and ids of attempt 1 left.
func endedUnsettled(t *testing.T) setup {
	canceled := jobv1.JobState_JOB_STATE_CANCELED
	return inquirable(setup{former: append(completion(t),
		&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{JobId: jobID, Target: canceled}}},
		&raftv1.Command{Command: &raftv1.Command_RecordResult{RecordResult: &raftv1.RecordResult{JobId: jobID, State: canceled, Unsettled: "the broker was away"}}},
	)})
}

// errands returns the orders to start a worker for the ended job, oldest first.
func (f *fixture) errands() (out []*clusterv1.StartWorker) {
	synctest.Wait()
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	for _, m := range f.sessions.messages {
		if w := m.GetStartWorker(); w != nil {
			out = append(out, w)
		}
	}
	return out
}

// errand waits for the nth order.
func (f *fixture) errand(n int) (order *clusterv1.StartWorker, attempt uint64) {
	f.t.Helper()
	orders := f.errands()
	require.Len(f.t, orders, n)
	return orders[n-1], orders[n-1].GetPrepare().GetAttempt()
}

// stopped tells whether the end of an errand's worker was ordered.
func (f *fixture) stopped(attempt uint64) bool {
	synctest.Wait()
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	for _, m := range f.sessions.messages {
		if m.GetStopWorker().GetAttempt() == attempt && attempt != 0 {
			return true
		}
	}
	return false
}

func (f *fixture) starts() (out []*workerv1.Start) {
	synctest.Wait()
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	for _, m := range f.sessions.messages {
		if s := m.GetWorkerCommand().GetCommand().GetStart(); s != nil {
			out = append(out, s)
		}
	}
	return out
}

func (f *fixture) preparedWith(attempt uint64, lost ...*jobv1.LostOutput) {
	f.eventOf(theTM, attempt, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{Lost: lost}}})
}

func TestAJobThatEndedUnsettledIsSettledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		time.Sleep(4 * time.Second)
		require.Empty(t, f.errands())
		time.Sleep(time.Second)
		order, attempt := f.errand(1)
		require.Greater(t, attempt, uint64(1<<32), "no real attempt has this number")
		p := order.GetPrepare()
		require.True(t, p.GetSettleOnly())
		require.False(t, p.GetInspectOnly())
		require.EqualValues(t, 3, p.GetRestore().GetCheckpoint())
		require.Equal(t, workerv1.LossPolicy_LOSS_POLICY_ACCEPT_UNKNOWN, p.GetRestore().GetLossPolicy(), "it goes on when something is lost, and tells")
		require.Empty(t, f.manager.Stale([]*clusterv1.RunningAttempt{{JobId: jobID, Attempt: attempt}}), "the worker is wanted")

		require.Empty(t, f.starts(), "nothing is fenced before everything is committed")
		f.preparedWith(attempt)
		require.Len(t, f.starts(), 1)
		require.EqualValues(t, 1, f.starts()[0].GetFence()[0].GetAttempt())
		require.NotEmpty(t, f.record().GetUnsettled())
		f.eventOf(theTM, attempt, startedEvent())
		require.Empty(t, f.record().GetUnsettled())
		require.Empty(t, f.unfenced())
		require.Empty(t, f.record().GetLost())
		require.True(t, f.stopped(attempt))
		require.Len(t, f.manager.Stale([]*clusterv1.RunningAttempt{{JobId: jobID, Attempt: attempt}}), 1)
		require.Equal(t, jobv1.JobState_JOB_STATE_CANCELED, f.record().GetState())
		f.eventually("nobody needs its checkpoint any more", func() bool {
			return len(f.record().GetCheckpoints()) == 0 && len(f.record().GetGarbage()) == 0
		})
		time.Sleep(time.Hour)
		f.errand(1)
	})
}

// What cannot be committed is known before anybody hears that the job is settled, and keeps the checkpoint.
func TestWhatIsFoundLostLaterIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		time.Sleep(5 * time.Second)
		_, attempt := f.errand(1)
		f.preparedWith(attempt, &jobv1.LostOutput{Sink: "v", Checkpoint: 3, Transaction: "x"})
		require.Len(t, f.record().GetLost(), 1)
		require.False(t, f.record().GetLost()[0].GetAccepted())
		require.NotEmpty(t, f.record().GetUnsettled())
		f.eventOf(theTM, attempt, startedEvent())
		require.Empty(t, f.record().GetUnsettled())
		require.Len(t, f.record().GetCheckpoints(), 1, "somebody has to decide")
	})
}

func TestSettlingLaterIsTriedAgain(t *testing.T) {
	for name, fail := range map[string]func(f *fixture, attempt uint64){
		"the worker fails": func(f *fixture, attempt uint64) {
			f.eventOf(theTM, attempt, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Message: "boom"}}})
		},
		"the worker dies": func(f *fixture, attempt uint64) {
			f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, ExitCode: 1})
		},
		"the TaskManager is lost":      func(f *fixture, _ uint64) { f.manager.Lost(theTM, "silent", false) },
		"the session breaks":           func(f *fixture, _ uint64) { f.manager.Interrupted(theTM) },
		"the TaskManager shuts down":   func(f *fixture, _ uint64) { f.manager.Leaving(theTM) },
		"the worker is never heard of": func(*fixture, uint64) { time.Sleep(2 * time.Minute) },
		"the fencing fails": func(f *fixture, attempt uint64) {
			f.preparedWith(attempt)
			f.eventOf(theTM, attempt, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Message: "boom"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := endedUnsettled(t).begin(t)
				time.Sleep(5 * time.Second)
				_, first := f.errand(1)
				fail(f, first)
				require.True(t, f.stopped(first))
				require.NotEmpty(t, f.record().GetUnsettled())
				require.Equal(t, []uint64{1}, f.unfenced())
				require.Len(t, f.manager.Stale([]*clusterv1.RunningAttempt{{JobId: jobID, Attempt: first}}), 1)
				time.Sleep(9 * time.Second)
				f.errand(1)
				time.Sleep(time.Second)
				_, second := f.errand(2)
				require.Greater(t, second, first)
				f.preparedWith(first) // of the former worker
				require.LessOrEqual(t, len(f.starts()), 1)
				f.preparedWith(second)
				f.eventOf(theTM, second, startedEvent())
				require.Empty(t, f.record().GetUnsettled())
			})
		})
	}
}

func TestSettlingLaterWaitsForATaskManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := endedUnsettled(t)
		leaving := theTM
		leaving.Leaving = true
		s.tms = append(s.tms, leaving)
		f := s.begin(t)
		time.Sleep(2 * time.Hour)
		require.Empty(t, f.errands())
		f.sessions.become(theTM)
		time.Sleep(5 * time.Minute) // the longest pause
		require.Len(t, f.errands(), 1)
	})
}

// An operator who has mended the cause does not wait for the pause to end.
func TestSettlingLaterIsTriedAtOnceWhenAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		f.manager.SettleAgain("somebody else")
		require.Empty(t, f.errands())
		f.manager.SettleAgain(jobID)
		f.manager.SettleAgain(jobID)
		require.Len(t, f.errands(), 1)
	})
}

func TestWhoIsNotSettledLater(t *testing.T) {
	for name, change := range map[string]func(*setup){
		"a job that is settled": func(s *setup) {
			s.former[len(s.former)-1].GetRecordResult().Unsettled = ""
		},
		"a binary of an older version": func(s *setup) {
			s.graph = func(g *jobv1.Graph) { g.TransactionsCommand = false }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := endedUnsettled(t)
				change(&s)
				f := s.begin(t)
				time.Sleep(time.Hour)
				f.manager.SettleAgain(jobID)
				require.Empty(t, f.errands())
			})
		})
	}
}

// A job that ends with something unsettled under this leader is taken up without a leader change.
func TestAJobIsSettledLaterByTheLeaderUnderWhichItEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inquirable(setup{}).begin(t)
		f.deploy(1, theTM)
		require.NoError(t, f.manager.Cancel(t.Context(), jobID, "c"))
		f.waitFor("kill 1")
		f.exits(1)
		f.waitFor("prepare 2")
		f.eventOf(theTM, 2, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{
			Class: workerv1.FailureClass_FAILURE_CLASS_FATAL, Message: "no use",
		}}})
		f.exits(2)
		require.NotEmpty(t, f.record().GetUnsettled())
		before := len(f.errands())
		time.Sleep(5 * time.Second)
		_, attempt := f.errand(before + 1)
		f.preparedWith(attempt)
		f.eventOf(theTM, attempt, startedEvent())
		require.Empty(t, f.record().GetUnsettled())
	})
}

// Whoever asks about the transactions of an ended job gets a worker for it, which changes nothing.
func TestTransactionsOfAnEndedJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		c := f.ask(t.Context())
		order, attempt := f.errand(1)
		require.True(t, order.GetPrepare().GetSettleOnly())
		require.True(t, order.GetPrepare().GetInspectOnly())
		require.Empty(t, f.sessions.asked("tm1"))
		f.preparedWith(attempt)
		asked := f.sessions.asked("tm1")
		require.Len(t, asked, 1)
		require.EqualValues(t, 1, asked[0].GetAttempts()[0].GetAttempt())
		requireNoAnswer(t, c)
		f.eventOf(theTM, attempt, doneEvent(&workerv1.TransactionsDone{Request: asked[0].GetRequest(), Transactions: []*jobv1.Transaction{{Id: "x"}}}))
		a := given(t, c)
		require.NoError(t, a.err)
		require.Empty(t, a.Problems)
		require.Equal(t, "x", a.Done[0].GetTransactions()[0].GetId())
		require.True(t, f.stopped(attempt))
		require.Empty(t, f.starts(), "a worker that only looks fences nothing")
		require.NotEmpty(t, f.record().GetUnsettled())
	})
}

func TestTransactionsOfAnEndedJobThatNobodyCanTell(t *testing.T) {
	for name, test := range map[string]struct {
		come func(f *fixture, attempt uint64)
		why  string
	}{
		"the worker fails": {func(f *fixture, attempt uint64) {
			f.eventOf(theTM, attempt, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Message: "boom"}}})
		}, "boom"},
		"the worker dies": {func(f *fixture, attempt uint64) {
			f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, ExitCode: 7, OutputTail: "out of cheese"})
		}, "the worker for it ended early, with exit code 7: out of cheese"},
		"the TaskManager is lost": {func(f *fixture, _ uint64) { f.manager.Lost(theTM, "silent", true) }, "TaskManager tm1 on h1 went away"},
		"nobody answers":          {func(*fixture, uint64) { time.Sleep(2 * time.Minute) }, "the worker for it did not answer in time: context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := endedUnsettled(t).begin(t)
				c := f.ask(t.Context())
				_, attempt := f.errand(1)
				test.come(f, attempt)
				a := given(t, c)
				require.NoError(t, a.err)
				require.Equal(t, []string{test.why}, a.Problems)
				require.True(t, f.stopped(attempt))
			})
		})
	}
}

// Two workers of a job's transactions at a time could commit and abort the same one.
func TestErrandsOfAJobComeOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		first := f.ask(t.Context())
		impatient, cancel := context.WithCancel(t.Context())
		second, third := f.ask(impatient), f.ask(t.Context())
		time.Sleep(10 * time.Second) // the settling waits too
		_, attempt := f.errand(1)
		cancel()
		require.ErrorIs(t, given(t, second).err, context.Canceled)
		requireNoAnswer(t, third)
		f.preparedWith(attempt)
		f.eventOf(theTM, attempt, doneEvent(&workerv1.TransactionsDone{}))
		require.Len(t, given(t, first).Done, 1)
		require.Len(t, f.errands(), 2, "one of the two that wait")
	})
}

// durableUnsettled is endedUnsettled with output that is kept with the checkpoints.
func durableUnsettled(t *testing.T) setup {
	s := endedUnsettled(t)
	graph := s.graph
	s.graph = func(g *jobv1.Graph) {
		graph(g)
		g.Vertices[0].Operators[0].DurableOutput = true
	}
	return s
}

// rewrittenEvent tells of a transaction in the place of that of checkpoint 3.
func rewrittenEvent() *workerv1.Event {
	return &workerv1.Event{Event: &workerv1.Event_Rewritten{Rewritten: &workerv1.Rewritten{Replacements: []*workerv1.Replacement{{
		Uid: "v", Replaced: []*workerv1.ReplacedTransactions{{Checkpoints: []uint64{3}}},
		Committable: &snapshotv1.Committable{Checkpoint: 3, Payload: []byte("a")},
	}}}}}
}

// commits counts the commands to commit what was written again.
func (f *fixture) commits() (n int) {
	f.sessions.mu.Lock()
	defer f.sessions.mu.Unlock()
	for _, m := range f.sessions.messages {
		if m.GetWorkerCommand().GetCommand().GetCommitRewritten() != nil {
			n++
		}
	}
	return n
}

// Lost output that is kept is written again for a job that has ended too, by an attempt of the log, whose entry comes before the commit.
func TestKeptOutputOfAnEndedJobIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := durableUnsettled(t).begin(t)
		time.Sleep(5 * time.Second)
		order, attempt := f.errand(1)
		require.EqualValues(t, 2, attempt)
		require.EqualValues(t, 2, f.record().GetAttempt())
		require.Equal(t, f.record().GetToken(), order.GetPrepare().GetToken())
		require.Empty(t, f.manager.Stale([]*clusterv1.RunningAttempt{{JobId: jobID, Attempt: attempt}}))
		f.set(func() {
			f.log.lose = func(cmd *raftv1.Command) (bool, bool) {
				require.False(t, cmd.GetReplaceTransactions() != nil && f.commits() > 0, "the entry comes first")
				return false, true
			}
		})
		f.eventOf(theTM, attempt, rewrittenEvent())
		require.Len(t, f.record().GetReplaced().GetReplacements(), 1)
		require.Equal(t, 1, f.commits())
		require.Empty(t, f.starts(), "nothing is fenced before everything is committed")
		f.preparedWith(attempt)
		require.EqualValues(t, 1, f.starts()[0].GetFence()[0].GetAttempt())
		f.eventOf(theTM, attempt, startedEvent())
		require.Empty(t, f.record().GetUnsettled())
		require.Empty(t, f.unfenced())
		require.Nil(t, f.record().GetReplaced())
		require.Equal(t, jobv1.JobState_JOB_STATE_CANCELED, f.record().GetState())
	})
}

// The next one commits what the former one wrote, and fences it.
func TestAnErrandThatDiesWithWhatItHasWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := durableUnsettled(t).begin(t)
		time.Sleep(5 * time.Second)
		_, first := f.errand(1)
		f.eventOf(theTM, first, rewrittenEvent())
		f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: first, ExitCode: 1})
		require.True(t, f.stopped(first))
		time.Sleep(10 * time.Second)
		order, second := f.errand(2)
		require.EqualValues(t, 3, second)
		require.Equal(t, "a", string(order.GetPrepare().GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
		f.preparedWith(second)
		require.Equal(t, []uint64{1, 2}, f.unfenced())
		require.Len(t, f.starts()[0].GetFence(), 2)
		f.eventOf(theTM, second, startedEvent())
		require.Empty(t, f.unfenced())
		require.Empty(t, f.record().GetUnsettled())
	})
}

func TestAnErrandWhoseEntryHasNoKnownOutcomeIsFollowedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := durableUnsettled(t).begin(t)
		lost := false
		f.set(func() {
			f.log.lose = func(cmd *raftv1.Command) (bool, bool) {
				if cmd.GetSettleEnded() != nil && !lost {
					lost = true
					return true, true
				}
				return false, true
			}
		})
		time.Sleep(5 * time.Second)
		require.Empty(t, f.errands(), "nobody knows whether its attempt is the current one")
		time.Sleep(10 * time.Second)
		_, attempt := f.errand(1)
		require.EqualValues(t, 3, attempt)
	})
}

// A job that was submitted from the checkpoint meanwhile writes again what was lost, and nobody beside it.
func TestAnErrandGivesWayToAJobThatBeganWithTheCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := durableUnsettled(t).begin(t)
		time.Sleep(5 * time.Second)
		_, attempt := f.errand(1)
		f.set(func() {
			res := f.log.state.Apply(f.log.state.View().Index()+1, &raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: &raftv1.JobRecord{
				Id: "k", RequestId: "k", Name: "k", Graph: f.log.state.View().Jobs()[0].GetGraph(),
				From: &workerv1.RestorePoint{Checkpoint: 3, Metadata: f.log.state.View().Jobs()[0].GetCheckpoints()[0].GetMetadata()},
			}}}})
			require.NoError(t, res.Err)
		})
		f.eventOf(theTM, attempt, rewrittenEvent())
		require.Zero(t, f.commits())
		require.True(t, f.stopped(attempt))
		require.Nil(t, f.record().GetReplaced())
		time.Sleep(time.Hour)
		f.errand(1)
	})
}

// Whoever looks at the transactions of an ended job, or ends one, is shown what has taken the place of lost ones and is not known to be
// committed.
func TestTransactionsOfAnEndedJobWithAPendingReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := durableUnsettled(t).begin(t)
		time.Sleep(5 * time.Second)
		_, settling := f.errand(1)
		c := f.ask(t.Context())
		f.errand(1) // one after the other
		f.eventOf(theTM, settling, rewrittenEvent())
		f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: settling, ExitCode: 1})
		order, looking := f.errand(2)
		require.True(t, order.GetPrepare().GetInspectOnly())
		require.Greater(t, looking, uint64(1<<32), "it is no attempt of the log")
		require.EqualValues(t, 2, f.record().GetAttempt())
		require.Equal(t, "a", string(order.GetPrepare().GetRestore().GetReplacements()[0].GetCommittable().GetPayload()))
		f.preparedWith(looking)
		f.eventOf(theTM, looking, doneEvent(&workerv1.TransactionsDone{}))
		require.NoError(t, given(t, c).err)
		require.Equal(t, 1, f.commits(), "by the one that has written it")
	})
}

// What comes together with the event that is waited for is not forgotten.
func TestAnErrandWhoseWorkerDiesAsSoonAsItIsPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		begun := time.Now()
		c := f.ask(t.Context())
		_, attempt := f.errand(1)
		f.manager.WorkerEvent(theTM, &clusterv1.WorkerEvent{JobId: jobID, Attempt: attempt, Event: &workerv1.Event{
			Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{}},
		}})
		f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, ExitCode: 7})
		a := <-c
		require.Less(t, time.Since(begun), time.Second)
		require.Len(t, a.Problems, 1)
		require.Contains(t, a.Problems[0], "exit code 7")
		require.True(t, a.Unanswered, "it may have been carried out")
	})
}

// refuseOnce has the log refuse the first of the entries that are meant.
func (f *fixture) refuseOnce(meant func(*raftv1.Command) bool) {
	refused := false
	f.set(func() {
		f.log.refuse = func(cmd *raftv1.Command) error {
			if refused || !meant(cmd) {
				return nil
			}
			refused = true
			return errors.New("not in this state")
		}
	})
}

func isLoss(cmd *raftv1.Command) bool { return cmd.GetUpdateLosses() != nil }

// Nothing is settled that the log has refused to know.
func TestAnEntryOfAnErrandThatTheLogRefuses(t *testing.T) {
	lost := &jobv1.LostOutput{Sink: "v", Checkpoint: 3, Transaction: "x"}
	for name, test := range map[string]struct {
		meant  func(*raftv1.Command) bool
		starts int // workers that were told to fence
	}{
		"of lost output":                {isLoss, 0},
		"of the result of the settling": {func(cmd *raftv1.Command) bool { return cmd.GetSettleResult() != nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := endedUnsettled(t).begin(t)
				f.refuseOnce(test.meant)
				time.Sleep(5 * time.Second)
				_, first := f.errand(1)
				f.preparedWith(first, lost)
				f.eventOf(theTM, first, startedEvent())
				require.Len(t, f.starts(), test.starts)
				require.NotEmpty(t, f.record().GetUnsettled())
				require.True(t, f.stopped(first))

				time.Sleep(10 * time.Second)
				_, second := f.errand(2)
				f.preparedWith(second, lost)
				f.eventOf(theTM, second, startedEvent())
				require.Empty(t, f.record().GetUnsettled())
				require.Len(t, f.record().GetLost(), 1)
			})
		})
	}
}

// A settling attempt whose losses the log refuses to know has not settled anything.
func TestASettlingAttemptWhoseLossesTheLogRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := inquirable(setup{}).begin(t)
		f.deploy(1, theTM)
		f.waitFor("trigger 1")
		f.ack(1)
		f.waitFor("complete 1")
		settled := func() bool { return f.record().GetCheckpoints()[0].GetSettled() }
		f.refuseOnce(isLoss)
		require.NoError(t, f.manager.Cancel(t.Context(), jobID, "c"))
		f.waitFor("kill 1")
		f.exits(1)
		f.waitFor("prepare 2")
		lost := &jobv1.LostOutput{Sink: "v", Checkpoint: 1, Transaction: "x"}
		f.preparedWith(2, lost)
		require.False(t, f.sessions.has("start 2"), "nothing is fenced before the loss is known")
		require.False(t, settled())
		f.exits(2)
		f.waitFor("prepare 3")
		f.preparedWith(3, lost)
		require.Len(t, f.record().GetLost(), 1)
		require.True(t, f.sessions.has("start 3"))
		require.True(t, settled())
	})
}

// A member that is not upgraded yet would stop at an entry that it does not know.
func TestALossIsRecordedAsAllMembersUnderstandIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := endedUnsettled(t).begin(t)
		f.set(func() {
			f.log.level = 24
			f.log.refuse = func(cmd *raftv1.Command) error {
				require.LessOrEqual(t, fsm.LevelOf(cmd), uint32(24))
				return nil
			}
		})
		time.Sleep(5 * time.Second)
		_, attempt := f.errand(1)
		f.preparedWith(attempt, &jobv1.LostOutput{Sink: "v", Checkpoint: 3, Transaction: "x"})
		f.eventOf(theTM, attempt, startedEvent())
		require.Empty(t, f.record().GetUnsettled())
		require.Len(t, f.record().GetLost(), 1)
	})
}
