package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/testlog"
	"github.com/weir-stream/weir/taskmanager/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// jobManager is a fake JobManager. Its fields may be changed while it serves, through do.
type jobManager struct {
	clusterv1.UnimplementedSessionServiceServer
	address string
	server  *grpc.Server
	served  sync.WaitGroup
	asked   atomic.Int32

	mu         sync.Mutex
	registered *clusterv1.Registered
	term       uint64
	refuse     error
	silent     bool
	cut        chan struct{} // closed to end the current session

	sessions chan *talk // each session that was registered
}

// talk is one session as the leader sees it.
type talk struct {
	register *clusterv1.SessionRequest
	stream   grpc.BidiStreamingServer[clusterv1.SessionRequest, clusterv1.SessionResponse]
	got      chan *clusterv1.SessionRequest
	done     chan struct{}
}

func serve(t *testing.T) *jobManager {
	return serveAt(t, "127.0.0.1:0")
}

func serveAt(t *testing.T, address string) *jobManager {
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	j := &jobManager{
		address: l.Addr().String(), server: grpc.NewServer(grpc.WaitForHandlers(true)), term: 1, cut: make(chan struct{}),
		registered: &clusterv1.Registered{ClusterId: "c1", HeartbeatIntervalMs: 20, HeartbeatTimeoutMs: 2000},
		sessions:   make(chan *talk, 100),
	}
	clusterv1.RegisterSessionServiceServer(j.server, j)
	j.served.Go(func() { _ = j.server.Serve(l) })
	t.Cleanup(j.stop)
	return j
}

func (j *jobManager) stop() {
	j.server.Stop()
	j.served.Wait()
}

func (j *jobManager) do(change func(j *jobManager)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(j)
}

// endSession cuts the running session.
func (j *jobManager) endSession() {
	j.do(func(j *jobManager) {
		close(j.cut)
		j.cut = make(chan struct{})
	})
}

func (j *jobManager) Session(st grpc.BidiStreamingServer[clusterv1.SessionRequest, clusterv1.SessionResponse]) error {
	first, err := st.Recv()
	if err != nil {
		return err
	}
	j.asked.Add(1)
	j.mu.Lock()
	refuse, term, registered, silent, cut := j.refuse, j.term, j.registered, j.silent, j.cut
	j.mu.Unlock()
	if refuse != nil {
		return grpcerr.Encode(refuse)
	}
	if err := st.Send(&clusterv1.SessionResponse{Term: term, Message: &clusterv1.SessionResponse_Registered{Registered: registered}}); err != nil {
		return err
	}
	s := &talk{register: first, stream: st, got: make(chan *clusterv1.SessionRequest, 10000), done: make(chan struct{})}
	defer close(s.done)
	j.sessions <- s
	go func() {
		defer close(s.got)
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			s.got <- m
		}
	}()
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	for {
		select {
		case <-cut:
			return status.Error(codes.Unavailable, "cut")
		case <-st.Context().Done():
			return st.Context().Err()
		case <-beat.C:
			if silent {
				continue
			}
			_ = s.say(term, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_Heartbeat{Heartbeat: &clusterv1.Heartbeat{}}})
		}
	}
}

func (s *talk) say(term uint64, m *clusterv1.SessionResponse) error {
	m.Term = term
	return s.stream.Send(m)
}

func (j *jobManager) next(t *testing.T) *talk {
	t.Helper()
	select {
	case s := <-j.sessions:
		return s
	case <-time.After(patience):
		require.Fail(t, "nobody registers")
		return nil
	}
}

// next returns the next message that is not a heartbeat.
func (s *talk) next(t *testing.T) *clusterv1.SessionRequest {
	t.Helper()
	limit := time.After(patience)
	for {
		select {
		case m, ok := <-s.got:
			require.True(t, ok, "the session ended")
			if m.GetHeartbeat() == nil {
				return m
			}
		case <-limit:
			require.Fail(t, "no message")
		}
	}
}

// handler records.
type handler struct {
	mu       sync.Mutex
	handled  []*clusterv1.SessionResponse
	clusters []string
	joinErr  error
	probeErr error
	gate     chan struct{}
}

func (h *handler) Running() []*clusterv1.RunningAttempt {
	return []*clusterv1.RunningAttempt{{JobId: "j", Attempt: 3}}
}
func (h *handler) FreeSlots() int { return 2 }

func (h *handler) Registered(m *clusterv1.Registered) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clusters = append(h.clusters, m.GetClusterId())
	return h.joinErr
}

func (h *handler) Probe(_ context.Context, name string) (string, error) {
	if h.gate != nil {
		<-h.gate
	}
	return "content of " + name, h.probeErr
}

func (h *handler) Handle(m *clusterv1.SessionResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handled = append(h.handled, m)
}

func (h *handler) all() []*clusterv1.SessionResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]*clusterv1.SessionResponse(nil), h.handled...)
}

func run(t *testing.T, h *handler, addresses ...string) *session.Session {
	return runLogging(t, h, slog.New(slog.DiscardHandler), addresses...)
}

func runLogging(t *testing.T, h *handler, logger *slog.Logger, addresses ...string) *session.Session {
	s := session.New(session.Config{
		Addresses: addresses, Handler: h, Register: &clusterv1.Register{TaskmanagerId: "tm", Slots: 2},
		RetryMin: 5 * time.Millisecond, RetryMax: 20 * time.Millisecond, ConnectTimeout: time.Second, AnswerTimeout: time.Second, Logger: logger,
		RefusedPause: 20 * time.Millisecond, UsualSearch: 100 * time.Millisecond,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var err error
	running.Go(func() { err = s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		require.NoError(t, err)
	})
	return s
}

func exited(attempt uint64) *clusterv1.SessionRequest {
	return &clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerExited{WorkerExited: &clusterv1.WorkerExited{JobId: "j", Attempt: attempt}}}
}

func event(e *workerv1.Event) *clusterv1.SessionRequest {
	return &clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerEvent{WorkerEvent: &clusterv1.WorkerEvent{JobId: "j", Attempt: 3, Event: e}}}
}

func failed(text string) *clusterv1.SessionRequest {
	return event(&workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Message: text}}})
}

func acked(n uint64) *clusterv1.SessionRequest {
	return event(&workerv1.Event{Event: &workerv1.Event_CheckpointAck{CheckpointAck: &workerv1.CheckpointAck{Checkpoint: n}}})
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestRegistersProbesAndBeats(t *testing.T) {
	j := serve(t)
	j.registered.ProbeObject = "c1/probe"
	j.registered.Stop = []*clusterv1.RunningAttempt{{JobId: "j", Attempt: 3}}
	h := &handler{}
	s := run(t, h, j.address)
	talk := j.next(t)
	require.Equal(t, "tm", talk.register.GetRegister().GetTaskmanagerId())
	require.EqualValues(t, 3, talk.register.GetRegister().GetRunning()[0].GetAttempt())
	require.Equal(t, "content of c1/probe", talk.next(t).GetProbe().GetContent())
	require.Eventually(t, s.Connected, patience, time.Millisecond)
	for {
		m := <-talk.got
		if m.GetHeartbeat() != nil {
			require.EqualValues(t, 2, m.GetHeartbeat().GetFreeSlots())
			require.EqualValues(t, 1, m.GetTerm())
			break
		}
	}
	require.Len(t, h.all(), 1)
	require.EqualValues(t, 3, h.all()[0].GetStopWorker().GetAttempt())
}

// Checkpoints that follow each other closely make more reports than there are heartbeats.
func TestReportsHoldUpNoHeartbeat(t *testing.T) {
	j := serve(t)
	j.registered.HeartbeatIntervalMs = 300
	s := run(t, &handler{}, j.address)
	talk := j.next(t)
	require.Eventually(t, s.Connected, patience, time.Millisecond)
	limit := time.After(patience)
	for beats, n := 0, uint64(0); beats < 4; n++ { // the first one comes at once
		s.Send(acked(n))
		select {
		case m := <-talk.got:
			if m.GetHeartbeat() != nil {
				beats++
			}
		case <-limit:
			require.Fail(t, "too few heartbeats", "%d, among %d reports", beats, n)
		}
	}
}

func TestNothingIsReportedBeforeTheProbe(t *testing.T) {
	j := serve(t)
	j.registered.ProbeObject = "c1/probe"
	h := &handler{gate: make(chan struct{})}
	s := run(t, h, j.address)
	s.Send(exited(1))
	talk := j.next(t)
	require.NotNil(t, (<-talk.got).GetHeartbeat(), "the leader is told that it goes on, slow storage or not")
	close(h.gate)
	require.NotNil(t, talk.next(t).GetProbe())
	require.NotNil(t, talk.next(t).GetWorkerExited())
}

func TestProbeErrorIsTold(t *testing.T) {
	j := serve(t)
	j.registered.ProbeObject = "c1/probe"
	run(t, &handler{probeErr: errors.New("no such directory")}, j.address)
	require.Equal(t, "no such directory", j.next(t).next(t).GetProbe().GetError())
}

func TestFollowsTheLeader(t *testing.T) {
	leader, follower := serve(t), serve(t)
	follower.refuse = &grpcerr.NotLeaderError{LeaderID: "jm2", LeaderAddress: leader.address}
	run(t, &handler{}, freePort(t), follower.address) // the leader's own address is not configured
	leader.next(t)
}

func TestGoesOnWhenTheNamedLeaderIsDead(t *testing.T) {
	a, b := serve(t), serve(t)
	a.refuse = &grpcerr.NotLeaderError{LeaderID: "jm3", LeaderAddress: freePort(t)}
	run(t, &handler{}, a.address, b.address)
	b.next(t)
}

func TestTwoThatNameEachOtherDoNotTrapIt(t *testing.T) {
	a, b := serve(t), serve(t)
	a.do(func(*jobManager) { a.refuse = &grpcerr.NotLeaderError{LeaderID: "b", LeaderAddress: b.address} })
	b.do(func(*jobManager) { b.refuse = &grpcerr.NotLeaderError{LeaderID: "a", LeaderAddress: a.address} })
	run(t, &handler{}, a.address, b.address)
	b.do(func(*jobManager) { b.refuse = nil })
	b.next(t)
}

func TestLeaderChange(t *testing.T) {
	a, b := serve(t), serve(t)
	b.do(func(*jobManager) { b.refuse = &grpcerr.NotLeaderError{LeaderID: "a", LeaderAddress: a.address} })
	h := &handler{}
	s := run(t, h, a.address, b.address)
	first := a.next(t)
	s.Send(exited(1))
	require.EqualValues(t, 1, first.next(t).GetWorkerExited().GetAttempt())

	b.do(func(*jobManager) { b.refuse, b.term = nil, 2 })
	a.do(func(*jobManager) { a.refuse = &grpcerr.NotLeaderError{LeaderID: "b", LeaderAddress: b.address} })
	a.endSession()
	second := b.next(t)
	require.EqualValues(t, 1, second.register.GetTerm(), "it tells the highest term it met")
	require.Equal(t, "c1", second.register.GetRegister().GetClusterId())
	require.EqualValues(t, 1, second.next(t).GetWorkerExited().GetAttempt(), "what may have been lost is sent again")
	require.NoError(t, second.say(2, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_PlanJob{PlanJob: &clusterv1.PlanJob{PlanId: "p"}}}))
	require.Eventually(t, func() bool { return len(h.all()) == 1 }, patience, time.Millisecond)
	require.EqualValues(t, 2, s.Term())
}

func TestStaleLeaderIsNotHeard(t *testing.T) {
	a, b := serve(t), serve(t)
	a.do(func(*jobManager) { a.term = 5 })
	b.do(func(*jobManager) { b.term = 4 })
	h := &handler{}
	s := run(t, h, a.address, b.address)
	talk := a.next(t)
	require.Eventually(t, func() bool { return s.Term() == 5 }, patience, time.Millisecond)
	// The same connection speaks with an old term: refused, and the connection ends.
	require.NoError(t, talk.say(3, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_PlanJob{PlanJob: &clusterv1.PlanJob{PlanId: "old"}}}))
	<-talk.done
	// While the new leader is away, the old one registers the TaskManager in vain.
	a.do(func(*jobManager) { a.refuse = status.Error(codes.Unavailable, "away") })
	a.endSession()
	b.next(t)
	s.Send(exited(9))
	a.do(func(*jobManager) { a.refuse = nil })
	// Sessions that began before a.refuse was set have ended without a report.
	for back := false; !back; {
		for m := range a.next(t).got {
			if back = m.GetWorkerExited().GetAttempt() == 9; back {
				break
			}
		}
	}
	require.Empty(t, h.all())
}

func TestReportsWhileNobodyLeads(t *testing.T) {
	address := freePort(t)
	s := run(t, &handler{}, address)
	s.Send(failed("disk"))
	s.Send(acked(7))
	s.Send(event(&workerv1.Event{Event: &workerv1.Event_Statistics{Statistics: &workerv1.Statistics{}}}))
	s.Send(event(&workerv1.Event{Event: &workerv1.Event_CheckpointDeclined{CheckpointDeclined: &workerv1.CheckpointDeclined{}}}))
	s.Send(event(&workerv1.Event{Event: &workerv1.Event_Activity{Activity: &workerv1.Activity{SinceCheckpoint: 4}}}))
	s.Send(exited(3))
	talk := serveAt(t, address).next(t)
	require.Equal(t, "disk", talk.next(t).GetWorkerEvent().GetEvent().GetTaskFailed().GetMessage())
	require.EqualValues(t, 4, talk.next(t).GetWorkerEvent().GetEvent().GetActivity().GetSinceCheckpoint())
	require.EqualValues(t, 3, talk.next(t).GetWorkerExited().GetAttempt())
	s.Send(acked(8))
	require.EqualValues(t, 8, talk.next(t).GetWorkerEvent().GetEvent().GetCheckpointAck().GetCheckpoint(), "7 was dropped")
}

// A worker that is quiet does not soon repeat what a leader has not got, or a new one does not know.
func TestFiguresAreToldToEachLeader(t *testing.T) {
	j := serve(t)
	s := run(t, &handler{}, j.address)
	figures := func(attempt uint64, read uint64) *clusterv1.SessionRequest {
		m := event(&workerv1.Event{Event: &workerv1.Event_Statistics{Statistics: &workerv1.Statistics{Tasks: []*jobv1.TaskStatistics{{RecordsIn: read}}}}})
		m.GetWorkerEvent().Attempt = attempt
		return m
	}
	told := func(m *clusterv1.SessionRequest) (uint64, uint64) {
		e := m.GetWorkerEvent()
		return e.GetAttempt(), e.GetEvent().GetStatistics().GetTasks()[0].GetRecordsIn()
	}
	j.next(t)
	require.Eventually(t, s.Connected, patience, time.Millisecond)
	s.Send(figures(3, 1))
	s.Send(figures(3, 2))
	s.Send(figures(4, 10))
	s.Send(figures(5, 20))
	s.Send(exited(5))
	j.endSession()
	talk := j.next(t)
	require.EqualValues(t, 5, talk.next(t).GetWorkerExited().GetAttempt())
	got := map[uint64]uint64{}
	for range 2 {
		attempt, read := told(talk.next(t))
		got[attempt] = read
	}
	require.Equal(t, map[uint64]uint64{3: 2, 4: 10}, got)
	s.Send(acked(8))
	require.NotNil(t, talk.next(t).GetWorkerEvent().GetEvent().GetCheckpointAck(), "those of a worker that has ended are forgotten")
}

func TestOrderIsKept(t *testing.T) {
	j := serve(t)
	s := run(t, &handler{}, j.address)
	talk := j.next(t)
	require.Eventually(t, s.Connected, patience, time.Millisecond) // before, acknowledgements are dropped
	for n := range uint64(1000) {
		s.Send(acked(n))
		s.Send(failed(fmt.Sprint(n)))
	}
	for n := range uint64(1000) {
		require.Equal(t, n, talk.next(t).GetWorkerEvent().GetEvent().GetCheckpointAck().GetCheckpoint())
		require.Equal(t, fmt.Sprint(n), talk.next(t).GetWorkerEvent().GetEvent().GetTaskFailed().GetMessage())
	}
}

func TestRefusalAtTheStartEndsTheTaskManager(t *testing.T) {
	j := serve(t)
	j.refuse = fmt.Errorf("%w: it does not see the storage", grpcerr.ErrRefused)
	s := session.New(session.Config{
		Addresses: []string{j.address}, Handler: &handler{}, Register: &clusterv1.Register{TaskmanagerId: "tm", Slots: 2},
		Logger: slog.New(slog.DiscardHandler),
	})
	err := s.Run(t.Context())
	require.ErrorIs(t, err, grpcerr.ErrRefused)
	require.ErrorContains(t, err, "it does not see the storage")
}

func TestLaterRefusalIsLoggedOnceAndTriedAgain(t *testing.T) {
	j := serve(t)
	var log testlog.Buffer
	runLogging(t, &handler{}, slog.New(slog.NewTextHandler(&log, nil)), j.address)
	j.next(t)
	j.do(func(*jobManager) { j.refuse = fmt.Errorf("%w: it does not see the storage", grpcerr.ErrRefused) })
	before := j.asked.Load()
	j.endSession()
	require.Eventually(t, func() bool { return j.asked.Load() > before+3 }, patience, time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "it does not see the storage"))
	j.do(func(*jobManager) { j.refuse = nil })
	j.next(t)
}

func TestSilentJobManagersAreNamed(t *testing.T) {
	var log testlog.Buffer
	runLogging(t, &handler{}, slog.New(slog.NewTextHandler(&log, nil)), "127.0.0.1:1", "127.0.0.1:2")
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "no leading jobmanager found") }, patience, time.Millisecond)
	require.Contains(t, log.String(), "127.0.0.1:1: ")
	require.Contains(t, log.String(), "127.0.0.1:2: ")
	first, rest, _ := strings.Cut(log.String(), "\n")
	require.Contains(t, first, "level=INFO", "a search begins at every start")
	require.NotContains(t, first, "refused")
	require.Contains(t, rest, "level=WARN")
}

// No more is said of a search that ends soon than that it has begun.
func TestAShortSearchIsNoWarning(t *testing.T) {
	j := serve(t)
	j.do(func(*jobManager) { j.refuse = &grpcerr.NotLeaderError{} })
	var log testlog.Buffer
	s := session.New(session.Config{
		Addresses: []string{j.address}, Handler: &handler{}, Register: &clusterv1.Register{TaskmanagerId: "tm", Slots: 2},
		RetryMin: time.Millisecond, RetryMax: time.Millisecond, UsualSearch: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	require.Eventually(t, func() bool { return j.asked.Load() > 5 }, patience, time.Millisecond)
	j.do(func(*jobManager) { j.refuse = nil })
	j.next(t)
	require.Eventually(t, s.Connected, patience, time.Millisecond)
	require.Equal(t, 1, strings.Count(log.String(), "looking for a leading jobmanager"))
	require.NotContains(t, log.String(), "level=WARN")
}

// A leader whose machine is gone, or whose packets are dropped, takes the whole time for connecting: the others are asked first.
func TestSilentLeaderIsLeftForTheOthers(t *testing.T) {
	a, b := serve(t), serve(t)
	a.do(func(*jobManager) { a.silent, a.registered.HeartbeatTimeoutMs = true, 100 })
	b.do(func(*jobManager) { b.refuse = &grpcerr.NotLeaderError{LeaderID: "a", LeaderAddress: a.address} })
	run(t, &handler{}, b.address, a.address)
	talk := a.next(t)
	b.do(func(*jobManager) { b.refuse = nil })
	<-talk.done
	b.next(t)
	require.EqualValues(t, 1, a.asked.Load())
}

// What takes a connection and says nothing is no JobManager that works.
func TestMuteAddressIsLeft(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer mute.Close()
	j := serve(t)
	run(t, &handler{}, mute.Addr().String(), j.address)
	j.next(t)
}

func TestGoodbyeIsTheLastWord(t *testing.T) {
	j := serve(t)
	s := run(t, &handler{}, j.address)
	talk := j.next(t)
	require.Eventually(t, s.Connected, patience, time.Millisecond)
	s.Goodbye()
	s.Send(exited(3))
	s.Flushed(t.Context())
	require.NotNil(t, talk.next(t).GetGoodbye())
	require.NotNil(t, talk.next(t).GetWorkerExited())
}

func TestFlushedDoesNotWaitForALeader(t *testing.T) {
	s := run(t, &handler{}, freePort(t))
	s.Send(exited(3))
	s.Flushed(t.Context())
}

func TestAnotherClusterEndsTheSession(t *testing.T) {
	j := serve(t)
	s := session.New(session.Config{
		Addresses: []string{j.address}, Register: &clusterv1.Register{}, Logger: slog.New(slog.DiscardHandler),
		Handler: &handler{joinErr: fmt.Errorf("mine is c0: %w", session.ErrOtherCluster)},
	})
	err := s.Run(t.Context())
	require.ErrorIs(t, err, session.ErrOtherCluster)
	require.ErrorContains(t, err, j.address)
}

func TestGoodbyeIsToldToEveryLaterLeader(t *testing.T) {
	j := serve(t)
	s := run(t, &handler{}, j.address)
	s.Goodbye() // before the first connection stands, perhaps
	require.NotNil(t, j.next(t).next(t).GetGoodbye())
	j.endSession()
	require.NotNil(t, j.next(t).next(t).GetGoodbye())
}
