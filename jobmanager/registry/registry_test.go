package registry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handler notes what it is told.
type handler struct {
	mu     sync.Mutex
	events []string
}

func (h *handler) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *handler) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

func (h *handler) Stale(running []*clusterv1.RunningAttempt) []*clusterv1.RunningAttempt {
	return running
}

func (h *handler) Joined(tm registry.TaskManager, r []*clusterv1.RunningAttempt) {
	h.add("joined %s/%s running=%d", tm.ID, tm.Incarnation, len(r))
}

func (h *handler) Interrupted(tm registry.TaskManager) {
	h.add("interrupted %s/%s", tm.ID, tm.Incarnation)
}

func (h *handler) Resumed(tm registry.TaskManager, r []*clusterv1.RunningAttempt) {
	h.add("resumed %s/%s running=%d", tm.ID, tm.Incarnation, len(r))
}

func (h *handler) Leaving(tm registry.TaskManager) {
	h.add("leaving %s/%s", tm.ID, tm.Incarnation)
}

func (h *handler) Lost(tm registry.TaskManager, _ string, dead bool) {
	h.add("lost %s/%s dead=%v", tm.ID, tm.Incarnation, dead)
}

func (h *handler) WorkerEvent(tm registry.TaskManager, ev *clusterv1.WorkerEvent) {
	h.add("event %s %d", tm.ID, ev.GetAttempt())
}

func (h *handler) WorkerExited(tm registry.TaskManager, ev *clusterv1.WorkerExited) {
	h.add("exited %s %d", tm.ID, ev.GetAttempt())
}

type service struct {
	clusterv1.UnimplementedSessionServiceServer
	r *registry.Registry
}

func (s service) Session(stream clusterv1.SessionService_SessionServer) error {
	return s.r.Serve(stream)
}

type fixture struct {
	t        *testing.T
	handler  *handler
	registry *registry.Registry
	conn     *grpc.ClientConn
}

func newFixture(t *testing.T, change func(*registry.Config)) *fixture {
	f := &fixture{t: t, handler: &handler{}}
	cfg := registry.Config{
		ClusterID: "c1", Term: 5, StorageURL: "file:///srv/weir",
		Probe:             func(context.Context) (string, string, error) { return "c1/probe", "secret", nil },
		HeartbeatInterval: 50 * time.Millisecond, HeartbeatTimeout: 10 * time.Second, Grace: 10 * time.Second,
		Handler: f.handler, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	f.registry = registry.New(cfg)
	l := bufconn.Listen(1 << 20)
	srv := grpc.NewServer(grpc.ChainStreamInterceptor(grpcerr.StreamServerInterceptor))
	clusterv1.RegisterSessionServiceServer(srv, service{r: f.registry})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	conn, err := grpc.NewClient("passthrough:///buf", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	f.conn = conn
	t.Cleanup(func() {
		f.registry.Close()
		require.NoError(t, conn.Close())
		srv.Stop()
		require.NoError(t, <-served)
	})
	return f
}

func (f *fixture) eventually(what string, ok func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			require.FailNow(f.t, "waited in vain until "+what, "events: %v", f.handler.all())
		}
		time.Sleep(time.Millisecond)
	}
}

func (f *fixture) sees(event string) {
	f.t.Helper()
	f.eventually("the handler sees "+event, func() bool { return slices.Contains(f.handler.all(), event) })
}

func register(id, incarnation string) *clusterv1.Register {
	return &clusterv1.Register{
		TaskmanagerId: id, Incarnation: incarnation, Host: "h", Slots: 2, ProtocolMin: 1, ProtocolMax: 1, Platform: "linux/amd64",
	}
}

type stream struct {
	clusterv1.SessionService_SessionClient
	cancel context.CancelFunc
}

// open begins a session and sends Register and, unless the session ends before, the probe's content.
func (f *fixture) open(reg *clusterv1.Register, probe string) (*stream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	f.t.Cleanup(cancel)
	s, err := clusterv1.NewSessionServiceClient(f.conn).Session(ctx)
	require.NoError(f.t, err)
	st := &stream{s, cancel}
	require.NoError(f.t, s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Register{Register: reg}}))
	for {
		msg, err := s.Recv()
		if err != nil {
			return st, grpcerr.Decode(err)
		}
		require.EqualValues(f.t, 5, msg.GetTerm())
		if r := msg.GetRegistered(); r != nil {
			require.Equal(f.t, "c1", r.GetClusterId())
			require.Equal(f.t, "c1/probe", r.GetProbeObject())
			require.Len(f.t, r.GetStop(), len(reg.GetRunning()))
			break
		}
	}
	_ = s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Probe{Probe: &clusterv1.Probe{Content: probe}}})
	return st, nil
}

// end returns why the server ended the session.
func (s *stream) end() error {
	for {
		if _, err := s.Recv(); err != nil {
			return grpcerr.Decode(err)
		}
	}
}

func (s *stream) next(t *testing.T) *clusterv1.SessionResponse {
	t.Helper()
	for {
		msg, err := s.Recv()
		require.NoError(t, err)
		if msg.GetHeartbeat() == nil {
			return msg
		}
	}
}

func TestRefusesThoseThatCannotWorkHere(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.open(register("tm0", "i"), "secret")
	require.NoError(t, err)
	f.sees("joined tm0/i running=0")
	for name, tc := range map[string]struct {
		change func(*clusterv1.Register)
		is     error
		says   []string
	}{
		"protocol": {func(r *clusterv1.Register) { r.ProtocolMin, r.ProtocolMax, r.Version = 7, 9, "v9" }, grpcerr.ErrRefused, []string{"v9", "7 to 9", fmt.Sprintf("%d to %d", version.ProtocolMin, version.ProtocolMax)}},
		"cluster":  {func(r *clusterv1.Register) { r.ClusterId = "c2" }, grpcerr.ErrRefused, []string{"c2", "c1"}},
		"platform": {func(r *clusterv1.Register) { r.Platform = "linux/arm64" }, grpcerr.ErrRefused, []string{"linux/arm64", "linux/amd64"}},
		"no slots": {func(r *clusterv1.Register) { r.Slots = 0 }, grpcerr.ErrInvalid, []string{"slot"}},
	} {
		reg := register("tm1", "i")
		tc.change(reg)
		_, err := f.open(reg, "secret")
		require.ErrorIs(t, err, tc.is, name)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s, name)
		}
	}
	s, err := f.open(register("tm1", "i"), "other content")
	require.NoError(t, err)
	err = s.end()
	require.ErrorIs(t, err, grpcerr.ErrRefused)
	require.ErrorContains(t, err, "one shared directory")
	require.Len(t, f.registry.TaskManagers(), 1)
}

func TestTheSameIncarnationResumes(t *testing.T) {
	f := newFixture(t, nil)
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	s.cancel()
	f.sees("interrupted tm1/i1")
	require.ErrorIs(t, f.registry.Send("tm1", &clusterv1.SessionResponse{}), grpcerr.ErrNoTaskManager)
	reg := register("tm1", "i1")
	reg.Running = []*clusterv1.RunningAttempt{{JobId: "j", Attempt: 1}}
	_, err = f.open(reg, "secret")
	require.NoError(t, err)
	f.sees("resumed tm1/i1 running=1")
	require.NotContains(t, f.handler.all(), "lost tm1/i1 dead=false")
}

func TestASecondSessionReplacesTheFirst(t *testing.T) {
	f := newFixture(t, nil)
	first, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	_, err = f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	require.Error(t, first.end())
	f.sees("resumed tm1/i1 running=0")
	require.Equal(t, []string{"joined tm1/i1 running=0", "interrupted tm1/i1", "resumed tm1/i1 running=0"}, f.handler.all())
}

func TestABrokenSessionIsLostAfterTheGrace(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.Grace = 20 * time.Millisecond })
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	s.cancel()
	f.sees("lost tm1/i1 dead=false")
	require.Empty(t, f.registry.TaskManagers())
	_, err = f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.eventually("it joins again", func() bool { return len(f.handler.all()) == 4 })
}

func TestGoodbyeIsToldBeforeTheWorkersEnd(t *testing.T) {
	f := newFixture(t, nil)
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	require.NoError(t, s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Goodbye{Goodbye: &clusterv1.Goodbye{}}}))
	require.NoError(t, s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_WorkerExited{WorkerExited: &clusterv1.WorkerExited{Attempt: 1}}}))
	f.sees("exited tm1 1")
	require.Equal(t, []string{"joined tm1/i1 running=0", "leaving tm1/i1", "exited tm1 1"}, f.handler.all())
	require.True(t, f.registry.TaskManagers()[0].Leaving)
	_, err = f.registry.Plan(t.Context(), &clusterv1.PlanJob{})
	require.ErrorIs(t, err, grpcerr.ErrNoTaskManager, "it gets no work")
	require.NoError(t, s.CloseSend())
	f.sees("lost tm1/i1 dead=false")

	// The same process is no less on its way out when it comes back once more.
	_, err = f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.eventually("it is back", func() bool { return len(f.registry.TaskManagers()) == 1 })
	require.True(t, f.registry.TaskManagers()[0].Leaving)
}

func TestANewIncarnationProvesTheFormerOneDead(t *testing.T) {
	f := newFixture(t, nil)
	former, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	former.cancel()
	_, err = f.open(register("tm1", "i2"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i2 running=0")
	all := f.handler.all() // the end of the first session may be told before
	require.Equal(t, []string{"lost tm1/i1 dead=true", "joined tm1/i2 running=0"}, all[len(all)-2:])
}

func TestANewIncarnationWaitsForAFormerOneOfWhichNothingIsHeard(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.HeartbeatTimeout = 200 * time.Millisecond })
	_, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	_, err = f.open(register("tm1", "i2"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i2 running=0")
}

func TestACopyOfALivingTaskManagerIsRefused(t *testing.T) {
	f := newFixture(t, nil)
	first, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	ctx, cancel := context.WithCancel(t.Context())
	var beats sync.WaitGroup
	beats.Go(func() {
		for ctx.Err() == nil {
			_ = first.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_Heartbeat{Heartbeat: &clusterv1.Heartbeat{}}})
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	second := register("tm1", "i2")
	second.Host = "elsewhere"
	_, err = f.open(second, "secret")
	require.ErrorIs(t, err, grpcerr.ErrRefused)
	for _, s := range []string{"tm1", "alive on h", "elsewhere", "data directory"} {
		require.ErrorContains(t, err, s)
	}
	require.Equal(t, []string{"joined tm1/i1 running=0"}, f.handler.all(), "the first one goes on undisturbed")
	cancel()
	beats.Wait()
}

func TestASilentTaskManagerIsLost(t *testing.T) {
	f := newFixture(t, func(c *registry.Config) { c.HeartbeatTimeout = 100 * time.Millisecond })
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	require.ErrorContains(t, s.end(), "no sign of life")
	f.sees("lost tm1/i1 dead=false")
	require.NotContains(t, f.handler.all(), "interrupted tm1/i1")
}

func TestAHigherTermEndsTheSession(t *testing.T) {
	f := newFixture(t, nil)
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	require.NoError(t, s.Send(&clusterv1.SessionRequest{Term: 6, Message: &clusterv1.SessionRequest_WorkerEvent{WorkerEvent: &clusterv1.WorkerEvent{Attempt: 1}}}))
	require.ErrorIs(t, s.end(), grpcerr.ErrStaleTerm)
	require.NotContains(t, f.handler.all(), "event tm1 1")
}

func TestAPeerThatDoesNotReadNeverBlocksTheSender(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.open(register("tm1", "i1"), "secret") // and never reads again
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")
	big := make([]string, 100)
	for i := range big {
		big[i] = string(make([]byte, 1000))
	}
	f.eventually("the session is given up", func() bool {
		for range 1000 {
			err := f.registry.Send("tm1", &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_PlanJob{PlanJob: &clusterv1.PlanJob{Args: big}}})
			if errors.Is(err, grpcerr.ErrNoTaskManager) {
				return true
			}
		}
		return false
	})
	f.sees("interrupted tm1/i1")
}

func TestPlansAndReadsLogs(t *testing.T) {
	f := newFixture(t, nil)
	_, err := f.registry.Plan(t.Context(), &clusterv1.PlanJob{})
	require.ErrorIs(t, err, grpcerr.ErrNoTaskManager)
	s, err := f.open(register("tm1", "i1"), "secret")
	require.NoError(t, err)
	f.sees("joined tm1/i1 running=0")

	var wg sync.WaitGroup
	wg.Go(func() {
		id := s.next(t).GetPlanJob().GetPlanId()
		_ = s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_JobPlanned{JobPlanned: &clusterv1.JobPlanned{
			PlanId: id, Result: &jobv1.PlanResult{Graph: &jobv1.Graph{Name: "g"}},
		}}})
		id = s.next(t).GetPlanJob().GetPlanId()
		_ = s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_JobPlanned{JobPlanned: &clusterv1.JobPlanned{
			PlanId: id, Error: "exec format error",
		}}})
		id = s.next(t).GetReadLogs().GetReadId()
		for _, c := range []*clusterv1.LogChunk{{Chunk: []byte("a")}, {Chunk: []byte("b"), End: true}} {
			c.ReadId = id
			_ = s.Send(&clusterv1.SessionRequest{Message: &clusterv1.SessionRequest_LogChunk{LogChunk: c}})
		}
		s.next(t)
		s.cancel() // in the middle of the third plan
	})
	res, err := f.registry.Plan(t.Context(), &clusterv1.PlanJob{})
	require.NoError(t, err)
	require.Equal(t, "g", res.GetGraph().GetName())
	_, err = f.registry.Plan(t.Context(), &clusterv1.PlanJob{})
	require.ErrorContains(t, err, "exec format error")
	var logs string
	require.NoError(t, f.registry.ReadLogs(t.Context(), "j", 1, 10, func(_ registry.TaskManager, c *clusterv1.LogChunk) error {
		logs += string(c.GetChunk())
		return nil
	}))
	require.Equal(t, "ab", logs)
	_, err = f.registry.Plan(t.Context(), &clusterv1.PlanJob{})
	require.ErrorIs(t, err, grpcerr.ErrNoTaskManager)
	wg.Wait()
}
