package driver_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/registry"
)

var otherTM = registry.TaskManager{ID: "tm2", Incarnation: "i2", Host: "h2", Slots: 1, Connected: true}

// inquirable is a job whose workers can tell of their transactions. Its time is the bubble's.
func inquirable(s setup) setup {
	graph := s.graph
	s.graph = func(g *jobv1.Graph) {
		g.TransactionsCommand = true
		if graph != nil {
			graph(g)
		}
	}
	config := s.config
	s.config = func(cfg *driver.Config) {
		cfg.ArtifactEvery = 24 * time.Hour
		if config != nil {
			config(cfg)
		}
	}
	return s
}

// onTwo has a task on each of two TaskManagers.
func onTwo() setup {
	one := theTM
	one.Slots = 1
	return inquirable(setup{
		tms:   []registry.TaskManager{one, otherTM},
		graph: func(g *jobv1.Graph) { g.Vertices[0].Parallelism = 2 },
	})
}

func (f *fixture) eventOf(tm registry.TaskManager, attempt uint64, e *workerv1.Event) {
	f.manager.WorkerEvent(tm, &clusterv1.WorkerEvent{JobId: jobID, Attempt: attempt, Event: e})
	synctest.Wait()
}

// deploy takes an attempt to the state in which it runs on these TaskManagers.
func (f *fixture) deploy(attempt uint64, tms ...registry.TaskManager) {
	f.t.Helper()
	f.waitFor(fmt.Sprintf("prepare %d", attempt))
	for _, tm := range tms {
		f.eventOf(tm, attempt, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: "a:1"}}})
	}
	f.waitFor(fmt.Sprintf("start %d", attempt))
	for _, tm := range tms {
		f.eventOf(tm, attempt, startedEvent())
	}
}

func startedEvent() *workerv1.Event {
	return &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}}
}

func doneEvent(d *workerv1.TransactionsDone) *workerv1.Event {
	return &workerv1.Event{Event: &workerv1.Event_TransactionsDone{TransactionsDone: d}}
}

func inspectCommand() *workerv1.Transactions {
	return &workerv1.Transactions{Action: &workerv1.Transactions_Inspect{Inspect: &workerv1.InspectTransactions{}}}
}

// asked returns the commands about transactions that were sent to a TaskManager, oldest first.
func (s *fakeSessions) asked(tm string) (out []*workerv1.Transactions) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.messages {
		if cmd := m.GetWorkerCommand().GetCommand().GetTransactions(); cmd != nil && m.tm == tm {
			out = append(out, cmd)
		}
	}
	return out
}

// answer is what somebody who asks about transactions gets.
type answer struct {
	driver.Answers
	err error
}

// ask asks about the transactions of the job.
func (f *fixture) ask(ctx context.Context) <-chan answer {
	c := make(chan answer, 1)
	go func() {
		a, err := f.manager.Transactions(ctx, f.record(), inspectCommand())
		c <- answer{a, err}
	}()
	synctest.Wait()
	return c
}

// given returns an answer that must be there.
func given(t *testing.T, c <-chan answer) answer {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		return a
	default:
		require.FailNow(t, "there is no answer")
		return answer{}
	}
}

func requireNoAnswer(t *testing.T, c <-chan answer) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		require.FailNow(t, "there is an answer", "%v", a)
	default:
	}
}

func TestAnInquiryIsAnsweredOnceAllWorkersHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := onTwo().begin(t)
		f.deploy(1, theTM, otherTM)
		first, second := f.ask(t.Context()), f.ask(t.Context())
		asked, askedToo := f.sessions.asked("tm1"), f.sessions.asked("tm2")
		require.Len(t, asked, 2)
		require.Len(t, askedToo, 2)
		require.NotEqual(t, asked[0].GetRequest(), asked[1].GetRequest())
		require.NotNil(t, asked[0].GetInspect())

		f.eventOf(theTM, 1, doneEvent(&workerv1.TransactionsDone{Request: 7}))
		f.eventOf(theTM, 1, doneEvent(&workerv1.TransactionsDone{Request: asked[0].GetRequest()}))
		f.eventOf(theTM, 1, doneEvent(&workerv1.TransactionsDone{Request: asked[0].GetRequest()}))
		requireNoAnswer(t, first)
		f.eventOf(otherTM, 1, doneEvent(&workerv1.TransactionsDone{Request: asked[0].GetRequest(), Error: "the broker is away", Outcome: workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE}))
		a := given(t, first)
		require.NoError(t, a.err)
		require.Len(t, a.Done, 2, "an answer counts once")
		require.Equal(t, []string{"the worker on h2: the broker is away"}, a.Problems)
		requireNoAnswer(t, second)
	})
}

// Nobody waits for ever for a worker that hangs, dies or is given up.
func TestAnInquiryThatIsNotAnswered(t *testing.T) {
	for name, test := range map[string]struct {
		come func(*fixture)
		why  string
	}{
		"a worker is silent": {
			func(*fixture) { time.Sleep(20 * time.Second) },
			"no answer of the workers on tm2: they did not answer within 20s",
		},
		"the attempt fails": {
			func(f *fixture) { f.dies(1, "boom") },
			"no answer of the workers on tm2: their attempt has ended",
		},
		"the leader gives way": {
			func(f *fixture) { f.manager.Close() },
			"no answer of the workers on tm2: the job has ended, or this JobManager leads no more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := onTwo().begin(t)
				f.deploy(1, theTM, otherTM)
				c := f.ask(t.Context())
				f.eventOf(theTM, 1, doneEvent(&workerv1.TransactionsDone{Request: f.sessions.asked("tm1")[0].GetRequest()}))
				requireNoAnswer(t, c)
				test.come(f)
				a := given(t, c)
				require.NoError(t, a.err)
				require.Len(t, a.Done, 1, "what is known is told")
				require.Equal(t, []string{test.why}, a.Problems)
				require.True(t, a.Unanswered, "it may have been carried out")
			})
		})
	}
}

func TestWhoCannotBeAsked(t *testing.T) {
	t.Run("a job that does not run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := inquirable(setup{}).begin(t)
			f.waitFor("prepare 1")
			a := given(t, f.ask(t.Context()))
			require.Len(t, a.Problems, 1)
			require.Contains(t, a.Problems[0], "no running attempt")
			require.Empty(t, f.sessions.asked("tm1"))
		})
	})
	t.Run("a binary of an older version", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := inquirable(setup{graph: func(g *jobv1.Graph) { g.TransactionsCommand = false }}).begin(t)
			f.deploy(1, theTM)
			a := given(t, f.ask(t.Context()))
			require.Len(t, a.Problems, 1)
			require.Contains(t, a.Problems[0], "older version of Weir")
			require.Empty(t, f.sessions.asked("tm1"))
		})
	})
	t.Run("a job without transactions", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := inquirable(setup{graph: func(g *jobv1.Graph) { g.Vertices[0].Operators[0].TransactionSlots = 0 }}).begin(t)
			f.deploy(1, theTM)
			require.Equal(t, answer{}, given(t, f.ask(t.Context())))
			require.Empty(t, f.sessions.asked("tm1"))
		})
	})
}

// afterLoss is a job whose attempt 2 runs on theTM while nobody knows what became of attempt 1 there: its TaskManager was cut off.
func afterLoss(t *testing.T) *fixture {
	f := inquirable(setup{}).begin(t)
	f.deploy(1, theTM)
	f.waitFor("trigger 1")
	f.ack(1)
	f.waitFor("complete 1")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Message: "boom"}}})
	f.waitFor("kill 1")
	cut := theTM
	cut.Connected = false
	f.manager.Interrupted(cut)
	f.manager.Resumed(theTM, []*clusterv1.RunningAttempt{{JobId: jobID, Attempt: 1}})
	f.deploy(2, theTM)
	require.Equal(t, []uint64{1}, f.unfenced())
	return f
}

func (f *fixture) unfenced() (out []uint64) {
	for _, a := range f.record().GetUnfenced() {
		out = append(out, a.GetAttempt())
	}
	return out
}

// fencings returns the commands to fence former attempts again.
func (f *fixture) fencings() (out []*workerv1.Transactions) {
	synctest.Wait()
	for _, cmd := range f.sessions.asked("tm1") {
		if cmd.GetFence() != nil {
			out = append(out, cmd)
		}
	}
	return out
}

func (f *fixture) exits(attempt uint64) {
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, Expected: true})
	synctest.Wait()
}

func (f *fixture) answerFencing(cmd *workerv1.Transactions, problem string) {
	f.eventOf(theTM, 2, doneEvent(&workerv1.TransactionsDone{Request: cmd.GetRequest(), Error: problem, Outcome: workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE}))
}

// A worker that nobody can prove dead may thaw at any time and open a transaction.
func TestFormerAttemptsAreFencedEvery30sUntilTheirWorkersAreDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := afterLoss(t)
		begin := time.Now()
		require.Empty(t, f.fencings())
		time.Sleep(29 * time.Second)
		require.Empty(t, f.fencings())
		for n := 1; n <= 3; n++ {
			time.Sleep(time.Until(begin.Add(time.Duration(n) * 30 * time.Second)))
			got := f.fencings()
			require.Len(t, got, n)
			require.EqualValues(t, 1, got[n-1].GetAttempts()[0].GetAttempt())
			f.answerFencing(got[n-1], "")
			require.Equal(t, []uint64{1}, f.unfenced(), "its worker may live")
		}

		f.exits(1)
		require.Len(t, f.fencings(), 4, "for the last time, at once")
		require.Equal(t, []uint64{1}, f.unfenced(), "it has not been fenced since its death")
		f.answerFencing(f.fencings()[3], "")
		require.Empty(t, f.unfenced())
		time.Sleep(5 * time.Minute)
		require.Len(t, f.fencings(), 4)
	})
}

// A fencing that was under way when the worker died proves nothing: what it did last may have come behind it.
func TestAFencingFromBeforeTheDeathIsNotTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := afterLoss(t)
		time.Sleep(30 * time.Second)
		require.Len(t, f.fencings(), 1)
		f.exits(1)
		require.Len(t, f.fencings(), 2)
		f.answerFencing(f.fencings()[0], "")
		require.Equal(t, []uint64{1}, f.unfenced())
		f.answerFencing(f.fencings()[1], "")
		require.Empty(t, f.unfenced())
	})
}

func TestAFencingThatFailsIsRepeated(t *testing.T) {
	for name, fail := range map[string]func(*fixture, *workerv1.Transactions){
		"with an error":     func(f *fixture, cmd *workerv1.Transactions) { f.answerFencing(cmd, "the broker is away") },
		"without an answer": func(*fixture, *workerv1.Transactions) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := afterLoss(t)
				f.exits(1)
				require.Len(t, f.fencings(), 1)
				fail(f, f.fencings()[0])
				time.Sleep(29 * time.Second)
				require.Equal(t, []uint64{1}, f.unfenced())
				require.Len(t, f.fencings(), 1)
				time.Sleep(time.Second)
				require.Len(t, f.fencings(), 2)
				f.answerFencing(f.fencings()[1], "")
				require.Empty(t, f.unfenced())
			})
		})
	}
}

// A leader that takes a running job over goes on with the fencing.
func TestFencingGoesOnAfterALeaderChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := append(formerAttempt(1, "i0"),
			&raftv1.Command{Command: &raftv1.Command_FailAttempt{FailAttempt: &raftv1.FailAttempt{JobId: jobID, Attempt: 1, Failure: &jobv1.Failure{}}}})
		f := inquirable(setup{former: append(former, formerAttempt(2, theTM.Incarnation)...)}).begin(t)
		running := back(true)
		running[0].Attempt = 2
		f.manager.Joined(theTM, running)
		synctest.Wait()
		time.Sleep(30 * time.Second)
		got := f.fencings()
		require.Len(t, got, 1)
		f.answerFencing(got[0], "")
		require.Empty(t, f.unfenced(), "its TaskManager has come back as another process, so its workers are dead")
		require.EqualValues(t, 2, f.record().GetAttempt())
	})
}
