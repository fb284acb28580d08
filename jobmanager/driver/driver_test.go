package driver_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/testing/protocmp"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/statebackend/blob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeLog is a log of one member whose answers a test can take away.
type fakeLog struct {
	mu    sync.Mutex
	state fsm.State
	level uint32 // of the oldest member; 0 for this program's
	// lose decides about a proposal whether its answer is lost, and whether it got into the log nevertheless.
	lose func(cmd *raftv1.Command) (lost, applied bool)
	// refuse answers in the place of the state machine, unless it returns nil.
	refuse func(cmd *raftv1.Command) error
	// barrier answers Barrier; nil means success.
	barrier func(ctx context.Context) error
}

func (l *fakeLog) Propose(ctx context.Context, cmd *raftv1.Command) (fsm.Result, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return fsm.Result{}, raftnode.ErrNotLeader
	}
	if l.refuse != nil {
		if err := l.refuse(cmd); err != nil {
			return fsm.Result{Err: err}, nil
		}
	}
	lost, applied := false, true
	if l.lose != nil {
		lost, applied = l.lose(cmd)
	}
	var res fsm.Result
	if applied {
		res = l.state.Apply(l.state.View().Index()+1, cmd)
	}
	if lost {
		return fsm.Result{}, raftnode.ErrUnknownOutcome
	}
	return res, nil
}

func (l *fakeLog) Level() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.level > 0 {
		return l.level
	}
	return fsm.Level
}

func (l *fakeLog) Barrier(ctx context.Context) error {
	l.mu.Lock()
	f := l.barrier
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (l *fakeLog) View() fsm.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state.View()
}

// fakeSessions are TaskManagers, one in most tests, that note what they are sent.
type fakeSessions struct {
	mu       sync.Mutex
	tms      []registry.TaskManager
	sent     []string
	messages []sentMessage
}

// sentMessage is one message to a TaskManager.
type sentMessage struct {
	tm string
	*clusterv1.SessionResponse
}

var theTM = registry.TaskManager{ID: "tm1", Incarnation: "i1", Host: "h1", Slots: 4, Connected: true}

func (s *fakeSessions) TaskManagers() []registry.TaskManager {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tms)
}

// become makes these processes the TaskManagers.
func (s *fakeSessions) become(tms ...registry.TaskManager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tms = tms
}

func (s *fakeSessions) Send(tm string, m *clusterv1.SessionResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.messages = append(s.messages, sentMessage{tm, m})
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionResponse_StartWorker:
		s.sent = append(s.sent, fmt.Sprintf("prepare %d", m.StartWorker.GetPrepare().GetAttempt()))
	case *clusterv1.SessionResponse_StopWorker:
		s.sent = append(s.sent, fmt.Sprintf("kill %d", m.StopWorker.GetAttempt()))
	case *clusterv1.SessionResponse_WorkerCommand:
		switch c := m.WorkerCommand.GetCommand().GetCommand().(type) {
		case *workerv1.Command_Start:
			s.sent = append(s.sent, fmt.Sprintf("start %d", m.WorkerCommand.GetAttempt()))
		case *workerv1.Command_TriggerCheckpoint:
			s.sent = append(s.sent, fmt.Sprintf("trigger %d", c.TriggerCheckpoint.GetCheckpoint()))
		case *workerv1.Command_CompleteCheckpoint:
			s.sent = append(s.sent, fmt.Sprintf("complete %d", c.CompleteCheckpoint.GetCheckpoint()))
		case *workerv1.Command_ResumeSources:
			s.sent = append(s.sent, "resume")
		case *workerv1.Command_AbortCheckpoint:
			s.sent = append(s.sent, fmt.Sprintf("abort %d", c.AbortCheckpoint.GetCheckpoint()))
		}
	}
	return nil
}

// has reports whether a message was sent.
func (s *fakeSessions) has(what string) bool { return s.count(what) > 0 }

func (s *fakeSessions) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, m := range s.sent {
		if m == what {
			n++
		}
	}
	return n
}

func (s *fakeSessions) hasPrefix(prefix string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		if strings.HasPrefix(m, prefix) {
			return true
		}
	}
	return false
}

type fixture struct {
	t        *testing.T
	log      *fakeLog
	sessions *fakeSessions
	manager  *driver.Manager
	dir      string // of checkpoint storage
}

const jobID = "j1"

// grace is how long the fixture's leader waits for TaskManagers to come back.
const grace = 200 * time.Millisecond

// setup is what a fixture begins with: a job of one task on one TaskManager, if nothing is changed, and entries that former leaders have
// left in the log.
type setup struct {
	graph  func(*jobv1.Graph)
	config func(*driver.Config)
	tms    []registry.TaskManager
	former []*raftv1.Command
}

// newFixture begins to drive a job of one task on one TaskManager, of which former leaders have left entries in the log.
func newFixture(t *testing.T, former ...*raftv1.Command) *fixture {
	return setup{former: former}.begin(t)
}

func (s setup) begin(t *testing.T) *fixture {
	if s.tms == nil {
		s.tms = []registry.TaskManager{theTM}
	}
	f := &fixture{t: t, log: &fakeLog{}, sessions: &fakeSessions{tms: s.tms}, dir: t.TempDir()}
	bucket, err := blob.OpenURL(t.Context(), "file://"+f.dir)
	require.NoError(t, err)
	f.log.state.Apply(1, &raftv1.Command{Command: &raftv1.Command_InitCluster{InitCluster: &raftv1.InitCluster{ClusterId: "c1"}}})
	graph := &jobv1.Graph{
		Name: "n", MaxParallelism: 8, Fingerprint: "f",
		Vertices:    []*jobv1.Vertex{{Id: "v", Parallelism: 1, Source: true, Operators: []*jobv1.Operator{{Uid: "v", TransactionSlots: 3}}}},
		Checkpoints: &jobv1.CheckpointConfig{Enabled: true, IntervalMs: 1, TimeoutMs: 60000, ToleratedFailures: 3, Retained: 1},
		Restarts:    &jobv1.RestartPolicy{MaxRestarts: 3, WindowMs: 60000, Multiplier: 1},
	}
	if s.graph != nil {
		s.graph(graph)
	}
	res := f.log.state.Apply(2, &raftv1.Command{Command: &raftv1.Command_CreateJob{CreateJob: &raftv1.CreateJob{Job: &raftv1.JobRecord{
		Id: jobID, RequestId: "r", Name: "n", Graph: graph, ArtifactSha256: "needed",
	}}}})
	require.NoError(t, res.Err)
	for _, cmd := range s.former {
		require.NoError(t, f.log.state.Apply(f.log.state.View().Index()+1, cmd).Err)
	}
	cfg := driver.Config{
		ClusterID: "c1", Log: f.log, Bucket: bucket, OpenBucket: blob.OpenURL,
		RegisterGrace: grace, CancelDeadline: time.Second, PrepareWarning: time.Minute, PrepareTimeout: time.Minute, SettleBudget: time.Minute,
		ArtifactEvery: 5 * time.Millisecond, ArtifactAge: artifactAge,
		Metrics: driver.NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	}
	if s.config != nil {
		s.config(&cfg)
	}
	f.manager = driver.New(context.Background(), cfg)
	t.Cleanup(func() {
		f.manager.Close()
		require.NoError(t, bucket.Close())
	})
	f.manager.Start(f.sessions)
	return f
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			f.sessions.mu.Lock()
			defer f.sessions.mu.Unlock()
			require.FailNow(f.t, "waited in vain until "+what, "sent: %v", f.sessions.sent)
		}
		time.Sleep(time.Millisecond)
	}
}

// await waits for a signal.
func (f *fixture) await(c <-chan struct{}) {
	f.t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		require.FailNow(f.t, "waited in vain")
	}
}

func (f *fixture) waitFor(message string) {
	f.t.Helper()
	f.eventually(message+" is sent", func() bool { return f.sessions.has(message) })
}

func (f *fixture) event(attempt uint64, e *workerv1.Event) {
	f.manager.WorkerEvent(theTM, &clusterv1.WorkerEvent{JobId: jobID, Attempt: attempt, Event: e})
}

func (f *fixture) prepared(attempt uint64) {
	f.event(attempt, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: "a:1"}}})
}

func (f *fixture) ack(n uint64) {
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{
		Checkpoint: n, Handle: &snapshotv1.TaskHandle{Vertex: "v", Committables: 1},
	}}})
}

// run takes attempt 1 to its first trigger.
func (f *fixture) run() {
	f.t.Helper()
	f.waitFor("prepare 1")
	f.prepared(1)
	f.waitFor("start 1")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	f.waitFor("trigger 1")
}

func (f *fixture) set(change func()) {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	change()
}

func isCompletion(cmd *raftv1.Command) bool { return cmd.GetCompleteCheckpoint() != nil }

// undecided makes the answer to the completion of a checkpoint get lost, and holds the barrier until decide is called.
func (f *fixture) undecided(applied bool) (asked <-chan struct{}, decide chan error) {
	waiting := make(chan struct{}, 1)
	decide = make(chan error)
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (bool, bool) {
			if isCompletion(cmd) {
				return true, applied
			}
			return false, true
		}
		f.log.barrier = func(ctx context.Context) error {
			waiting <- struct{}{}
			select {
			case err := <-decide:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return waiting, decide
}

func TestNobodyIsToldWhileTheOutcomeIsUnknown(t *testing.T) {
	f := newFixture(t)
	f.run()
	asked, decide := f.undecided(true)
	f.ack(1)
	f.await(asked)
	require.False(t, f.sessions.hasPrefix("complete"), "the log has not told yet")
	require.False(t, f.sessions.hasPrefix("abort"))
	f.set(func() { f.log.lose, f.log.barrier = nil, nil })
	decide <- nil
	f.waitFor("complete 1")
	require.False(t, f.sessions.has("abort 1"))
}

func TestAnEntryThatGotLostIsAnAbortedCheckpoint(t *testing.T) {
	f := newFixture(t)
	f.run()
	asked, decide := f.undecided(false)
	f.ack(1)
	f.await(asked)
	require.False(t, f.sessions.hasPrefix("abort"), "the log has not told yet")
	f.set(func() { f.log.lose, f.log.barrier = nil, nil })
	decide <- nil
	f.waitFor("abort 1")
	f.waitFor("trigger 2")
	f.ack(2)
	f.waitFor("complete 2")
	require.False(t, f.sessions.has("complete 1"))
}

// TestReservedIDsWhoseEntryWasRepeated: the entry that reserves ids was in the log although nobody knew, and its repetition is refused.
func TestReservedIDsWhoseEntryWasRepeated(t *testing.T) {
	f := newFixture(t)
	var once sync.Once
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (lost, applied bool) {
			if cmd.GetReserveCheckpointIds() != nil {
				once.Do(func() { lost = true })
			}
			return lost, true
		}
	})
	f.waitFor("prepare 1")
	f.prepared(1)
	f.waitFor("start 1")
	f.event(1, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	f.eventually("a checkpoint is triggered", func() bool { return f.sessions.hasPrefix("trigger ") })
	require.False(t, f.sessions.has("trigger 1"), "ids that the first entry has reserved are nobody's")
}

func TestALeaderThatWasSupersededSaysNothingMore(t *testing.T) {
	f := newFixture(t)
	f.run()
	asked, decide := f.undecided(true)
	f.ack(1)
	f.await(asked)
	decide <- raftnode.ErrNotLeader
	f.eventually("the driver has stopped", func() bool {
		_, _, driven := f.manager.Status(t.Context(), jobID)
		return !driven
	})
	for _, m := range []string{"complete", "abort", "kill", "prepare 2"} {
		require.False(t, f.sessions.hasPrefix(m), m)
	}
}

func TestNothingStartsBeforeTheLogSaysSo(t *testing.T) {
	f := newFixture(t)
	proposed, release := make(chan struct{}), make(chan struct{})
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (bool, bool) {
			if cmd.GetStartAttempt() != nil {
				close(proposed)
				<-release
				f.log.lose = nil
			}
			return false, true
		}
	})
	f.waitFor("prepare 1")
	f.prepared(1)
	f.await(proposed)
	require.False(t, f.sessions.has("start 1"))
	close(release)
	f.waitFor("start 1")
	require.True(t, func() bool { rec, _ := f.log.View().Job(jobID); return rec.GetStarted() }())
}

// A worker that has not said that it knows of slots is told of each task as well.
func TestOlderWorkersAreToldOfEachTask(t *testing.T) {
	for protocol, want := range map[uint32]int{0: 1, version.ProtocolSlots: 0} {
		f := newFixture(t)
		f.waitFor("prepare 1")
		f.event(1, &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: "a:1", ProtocolMax: protocol}}})
		f.waitFor("start 1")
		f.sessions.mu.Lock()
		start := f.sessions.messages[len(f.sessions.messages)-1].GetWorkerCommand().GetCommand().GetStart()
		f.sessions.mu.Unlock()
		require.Len(t, start.GetAddresses(), want, "protocol %d", protocol)
		require.Equal(t, "a:1", start.GetWorkers()[0].GetAddress())
		require.Equal(t, []uint32{0}, start.GetWorkers()[0].GetSlots())
		for _, a := range start.GetAddresses() {
			require.Empty(t, cmp.Diff(&workerv1.TaskAddress{Vertex: "v", Address: "a:1"}, a, protocmp.Transform()))
		}
	}
}

func TestAJobThatWasNeverPreparedFailsInsteadOfRestarting(t *testing.T) {
	for _, class := range []workerv1.FailureClass{workerv1.FailureClass_FAILURE_CLASS_RESTART, workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE} {
		t.Run(class.String(), func(t *testing.T) {
			f := newFixture(t)
			f.waitFor("prepare 1")
			f.event(1, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Class: class, Message: "no such broker"}}})
			f.waitFor("kill 1")
			f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
			f.eventually("the job to have failed", func() bool {
				rec, ok := f.log.View().Job(jobID)
				return ok && rec.GetState() == jobv1.JobState_JOB_STATE_FAILED
			})
			rec, _ := f.log.View().Job(jobID)
			require.Contains(t, rec.GetFailures()[0].GetMessage(), "no such broker")
			require.False(t, f.sessions.has("prepare 2"))
		})
	}
}

func TestAJobThatNeverRanNeedsNoSettling(t *testing.T) {
	f := newFixture(t)
	f.waitFor("prepare 1")
	storage := workerv1.FailureClass_FAILURE_CLASS_STORAGE
	f.event(1, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Class: storage, Message: "no mount"}}})
	f.waitFor("kill 1")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
	f.waitFor("prepare 2")
	f.event(2, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{
		Vertex: "v", Class: workerv1.FailureClass_FAILURE_CLASS_FATAL, Message: "no use",
	}}})
	f.waitFor("kill 2")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 2, Expected: true})
	f.eventually("the job to have failed", func() bool {
		rec, ok := f.log.View().Job(jobID)
		return ok && rec.GetState() == jobv1.JobState_JOB_STATE_FAILED
	})
	require.False(t, f.sessions.has("prepare 3"), "a settling attempt")
}

// A worker that waits for its broker must not keep a job from its end.
func TestSettlingThatStandsStillEndsWithItsBudget(t *testing.T) {
	f := setup{config: func(cfg *driver.Config) { cfg.SettleBudget = time.Second }}.begin(t)
	f.run()
	go func() { _ = f.manager.Cancel(context.Background(), jobID, "c") }()
	f.waitFor("kill 1")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 1, Expected: true})
	f.waitFor("prepare 2")
	f.waitFor("kill 2")
	f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: 2, Expected: true})
	f.eventually("the job to have its result", func() bool {
		rec, ok := f.log.View().Job(jobID)
		return ok && rec.GetState() == jobv1.JobState_JOB_STATE_CANCELED
	})
	rec, _ := f.log.View().Job(jobID)
	require.Contains(t, rec.GetUnsettled(), "settling gave up after 1s")
}

func TestACommandWhoseAnswerGotLostIsRecognized(t *testing.T) {
	f := newFixture(t)
	lost := 0
	f.set(func() {
		f.log.lose = func(cmd *raftv1.Command) (bool, bool) {
			if cmd.GetStartAttempt() != nil && lost == 0 {
				lost++
				return true, true
			}
			return false, true
		}
	})
	f.run()
	require.Equal(t, 1, lost)
	require.Equal(t, 1, f.sessions.count("start 1"))
}

func TestFencedOnlyOnceTheWorkersAreProvenDead(t *testing.T) {
	f := newFixture(t)
	f.run()
	f.ack(1)
	f.waitFor("complete 1")
	fail := func(attempt uint64) {
		f.event(attempt, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Message: "boom"}}})
		f.waitFor(fmt.Sprintf("kill %d", attempt))
	}
	start := func(attempt uint64) {
		f.waitFor(fmt.Sprintf("prepare %d", attempt))
		f.prepared(attempt)
		f.waitFor(fmt.Sprintf("start %d", attempt))
		f.event(attempt, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	}
	exited := func(attempt uint64) {
		f.manager.WorkerExited(theTM, &clusterv1.WorkerExited{JobId: jobID, Attempt: attempt, Expected: true})
	}
	unfenced := func() (out []uint64) {
		rec, _ := f.log.View().Job(jobID)
		for _, a := range rec.GetUnfenced() {
			out = append(out, a.GetAttempt())
		}
		return out
	}
	// The TaskManager is cut off before it reports the death of attempt 1's worker.
	cut := theTM
	cut.Connected = false
	fail(1)
	f.manager.Interrupted(cut)
	f.manager.Resumed(theTM, []*clusterv1.RunningAttempt{{JobId: jobID, Attempt: 1}})
	start(2)
	f.eventually("attempt 2 runs", func() bool { p, _, _ := f.manager.Status(t.Context(), jobID); return p.Explanation.Waiting() == "" })
	require.Equal(t, []uint64{1}, unfenced(), "a worker of attempt 1 may live")
	exited(1)
	fail(2)
	exited(2)
	start(3)
	f.eventually("both attempts are fenced", func() bool { return len(unfenced()) == 0 })
}

func TestASessionThatBreaksDuringDeploymentIsWaitedFor(t *testing.T) {
	f := newFixture(t)
	cut := theTM
	cut.Connected = false
	f.waitFor("prepare 1")
	f.manager.Interrupted(cut)
	f.manager.Resumed(theTM, nil)
	f.eventually("the order is repeated", func() bool { return f.sessions.count("prepare 1") == 2 })
	f.prepared(1)
	f.waitFor("start 1")
	f.manager.Interrupted(cut)
	f.manager.Resumed(theTM, []*clusterv1.RunningAttempt{{JobId: jobID, Attempt: 1}})
	f.eventually("the order is repeated", func() bool { return f.sessions.count("start 1") == 2 })
	f.event(1, &workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
	f.waitFor("trigger 1")
	require.False(t, f.sessions.hasPrefix("kill"))
}

func TestATaskManagerLostDuringDeploymentEndsTheAttempt(t *testing.T) {
	f := newFixture(t)
	cut := theTM
	cut.Connected = false
	f.waitFor("prepare 1")
	f.manager.Interrupted(cut)
	f.manager.Lost(cut, "no sign of life", false)
	f.manager.Joined(theTM, nil)
	f.waitFor("prepare 2")
}

func TestABrokenSessionIsNoFailedCheckpoint(t *testing.T) {
	f := newFixture(t)
	f.run()
	type answer struct {
		checkpoint uint64
		err        error
	}
	answered := make(chan answer, 1)
	go func() {
		_, n, err := f.manager.Savepoint(t.Context(), jobID, "sp", "file://"+t.TempDir())
		answered <- answer{n, err}
	}()
	cut := theTM
	cut.Connected = false
	// Each round interrupts one checkpoint; more of them than failures are tolerated.
	last := uint64(1)
	for n := uint64(1); n <= 5; n++ {
		f.waitFor(fmt.Sprintf("trigger %d", n))
		f.manager.Interrupted(cut)
		f.waitFor(fmt.Sprintf("abort %d", n))
		f.manager.Resumed(theTM, []*clusterv1.RunningAttempt{{JobId: jobID, Attempt: 1}})
		last = n + 1
	}
	f.eventually("the savepoint's checkpoint is taken", func() bool {
		for f.sessions.has(fmt.Sprintf("trigger %d", last+1)) {
			last++
		}
		f.ack(last)
		return f.sessions.has(fmt.Sprintf("complete %d", last))
	})
	f.event(1, &workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: last}}})
	select {
	case a := <-answered:
		require.NoError(t, a.err)
		require.Equal(t, last, a.checkpoint)
	case <-time.After(10 * time.Second):
		require.FailNow(t, "the savepoint is not answered")
	}
	require.False(t, f.sessions.hasPrefix("kill"))
}

// A worker says each thing once, and may say it before the others have started.
func TestWhatWorkersTellBeforeAllHaveStartedIsNotForgotten(t *testing.T) {
	for name, told := range map[string]*workerv1.Activity{
		"something changed":   {},
		"the input has ended": {Ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, completion(t)...)
			f.manager.Joined(theTM, nil)
			f.waitFor("prepare 2")
			f.prepared(2)
			f.waitFor("start 2")
			f.event(2, &workerv1.Event{Event: &workerv1.Event_Activity{Activity: told}})
			f.started(2)
			f.waitFor("trigger 10")
		})
	}
}
