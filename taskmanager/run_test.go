package taskmanager_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/taskmanager/session"
)

const patience = 20 * time.Second

// TestMain makes the test binary a job binary when a TaskManager starts it.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_MODE") == "worker" {
		os.Exit(obey())
	}
	goleak.VerifyTestMain(m)
}

// obey is a worker that prepares and cancels.
func obey() int {
	fmt.Println("hello from the worker")
	conn, err := grpc.NewClient("unix:"+os.Getenv("WEIR_CONTROL_SOCKET"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 1
	}
	stream, err := workerv1.NewWorkerServiceClient(conn).Control(context.Background())
	if err != nil {
		return 1
	}
	hello := &workerv1.Hello{ProtocolMin: 1, ProtocolMax: 1, Token: os.Getenv("WEIR_TOKEN")}
	_ = stream.Send(&workerv1.ControlRequest{Event: &workerv1.Event{Event: &workerv1.Event_Hello{Hello: hello}}})
	for {
		m, err := stream.Recv()
		if err != nil {
			return 1
		}
		if m.GetCommand().GetPrepare() != nil {
			_ = stream.Send(&workerv1.ControlRequest{Event: &workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{}}}})
		}
		if m.GetCommand().GetCancel() != nil {
			return 0
		}
	}
}

// leader is a fake JobManager.
type leader struct {
	clusterv1.UnimplementedSessionServiceServer
	address string
	cluster string
	say     chan *clusterv1.SessionResponse

	mu  sync.Mutex
	got []*clusterv1.SessionRequest
}

func newLeader(t *testing.T) *leader {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	j := &leader{address: l.Addr().String(), cluster: "c1", say: make(chan *clusterv1.SessionResponse)}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	clusterv1.RegisterSessionServiceServer(server, j)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return j
}

func (j *leader) Session(st grpc.BidiStreamingServer[clusterv1.SessionRequest, clusterv1.SessionResponse]) error {
	go func() {
		for {
			m, err := st.Recv()
			if err != nil {
				return
			}
			j.mu.Lock()
			j.got = append(j.got, m)
			j.mu.Unlock()
		}
	}()
	welcome := &clusterv1.Registered{ClusterId: j.cluster, HeartbeatIntervalMs: 100, HeartbeatTimeoutMs: 60000, ProbeObject: "c1/probe"}
	if err := st.Send(&clusterv1.SessionResponse{Term: 1, Message: &clusterv1.SessionResponse_Registered{Registered: welcome}}); err != nil {
		return err
	}
	for {
		select {
		case m := <-j.say:
			m.Term = 1
			if err := st.Send(m); err != nil {
				return err
			}
		case <-st.Context().Done():
			return nil
		}
	}
}

// await returns the first message that pick takes.
func (j *leader) await(t *testing.T, pick func(*clusterv1.SessionRequest) bool) *clusterv1.SessionRequest {
	t.Helper()
	var found *clusterv1.SessionRequest
	require.Eventually(t, func() bool {
		j.mu.Lock()
		defer j.mu.Unlock()
		for _, m := range j.got {
			if pick(m) {
				found = m
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond)
	return found
}

func testConfig(t *testing.T, j *leader) taskmanager.Config {
	dir, err := os.MkdirTemp("", "weir-tm-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	c := taskmanager.Default()
	c.DataDir, c.StorageURL = filepath.Join(dir, "data"), "file://"+filepath.Join(dir, "storage")
	c.JobManagers, c.Slots, c.AdminAddress = []string{j.address}, 3, "127.0.0.1:0"
	return c
}

// start runs a TaskManager; the returned function stops it and returns its error.
func start(cfg taskmanager.Config, logger *slog.Logger) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- taskmanager.Run(ctx, cfg, logger) }()
	return func() error {
		cancel()
		return <-result
	}
}

func upload(t *testing.T, cfg taskmanager.Config) string {
	bucket, err := blob.OpenURL(t.Context(), cfg.StorageURL)
	require.NoError(t, err)
	defer bucket.Close()
	require.NoError(t, bucket.Put(t.Context(), "c1/probe", strings.NewReader("probe content")))
	self, err := os.Executable()
	require.NoError(t, err)
	binary, err := os.ReadFile(self)
	require.NoError(t, err)
	sum := sha256.Sum256(binary)
	hash := hex.EncodeToString(sum[:])
	require.NoError(t, bucket.Put(t.Context(), "c1/artifacts/"+hash, strings.NewReader(string(binary))))
	return hash
}

func TestRunServesTheLeaderAndStopsInOrder(t *testing.T) {
	j := newLeader(t)
	cfg := testConfig(t, j)
	hash := upload(t, cfg)
	stop := start(cfg, slog.New(slog.DiscardHandler))
	register := j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetRegister() != nil }).GetRegister()
	require.EqualValues(t, 3, register.GetSlots())
	require.Equal(t, "probe content", j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetProbe() != nil }).GetProbe().GetContent())

	j.say <- &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_StartWorker{StartWorker: &clusterv1.StartWorker{
		ArtifactSha256: hash, Prepare: &workerv1.Prepare{ClusterId: "c1", JobId: "j1", Attempt: 1, Tasks: []*workerv1.TaskAssignment{{}}},
	}}}
	j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetWorkerEvent().GetEvent().GetPrepared() != nil })
	j.await(t, func(m *clusterv1.SessionRequest) bool {
		return m.GetHeartbeat() != nil && m.GetHeartbeat().GetFreeSlots() == 2
	})
	j.say <- &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_ReadLogs{ReadLogs: &clusterv1.ReadLogs{ReadId: "r", JobId: "j1"}}}
	chunk := j.await(t, func(m *clusterv1.SessionRequest) bool { return len(m.GetLogChunk().GetChunk()) > 0 })
	require.Equal(t, "hello from the worker\n", string(chunk.GetLogChunk().GetChunk()))

	require.NoError(t, stop())
	j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetGoodbye() != nil })
	exit := j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetWorkerExited() != nil }).GetWorkerExited()
	require.True(t, exit.GetExpected())
	require.Empty(t, exit.GetSignal(), "the worker had time to end by itself")
}

func TestIdentityStaysAndIncarnationChanges(t *testing.T) {
	j := newLeader(t)
	cfg := testConfig(t, j)
	cfg.AdminAddress = ""
	upload(t, cfg)
	registrations := map[string]*clusterv1.Register{}
	for range 2 {
		stop := start(cfg, slog.New(slog.DiscardHandler))
		r := j.await(t, func(m *clusterv1.SessionRequest) bool {
			r := m.GetRegister()
			return r != nil && registrations[r.GetIncarnation()] == nil
		}).GetRegister()
		registrations[r.GetIncarnation()] = r
		j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetProbe() != nil })
		require.NoError(t, stop())
	}
	require.Len(t, registrations, 2)
	ids, clusters := map[string]bool{}, map[string]bool{}
	for _, r := range registrations {
		ids[r.GetTaskmanagerId()] = true
		clusters[r.GetClusterId()] = true
	}
	require.Len(t, ids, 1)
	require.Equal(t, map[string]bool{"": true, "c1": true}, clusters, "the second time it knows where it belongs")

	other := newLeader(t)
	other.cluster = "c2"
	cfg.JobManagers = []string{other.address}
	err := taskmanager.Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, session.ErrOtherCluster)
	require.ErrorContains(t, err, cfg.DataDir)
}

func TestSecondProcessOnADataDirectoryIsRefused(t *testing.T) {
	j := newLeader(t)
	cfg := testConfig(t, j)
	cfg.AdminAddress = ""
	stop := start(cfg, slog.New(slog.DiscardHandler))
	j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetRegister() != nil })
	err := taskmanager.Run(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, taskmanager.ErrInUse)
	require.ErrorContains(t, err, "in use")
	require.NoError(t, stop())
}

func TestProbeThatCannotBeRead(t *testing.T) {
	j := newLeader(t)
	cfg := testConfig(t, j)
	cfg.AdminAddress = ""
	stop := start(cfg, slog.New(slog.DiscardHandler))
	p := j.await(t, func(m *clusterv1.SessionRequest) bool { return m.GetProbe() != nil }).GetProbe()
	require.Contains(t, p.GetError(), cfg.StorageURL)
	require.NoError(t, stop())
}

func TestMetricsAndReadiness(t *testing.T) {
	j := newLeader(t)
	cfg := testConfig(t, j)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.AdminAddress = l.Addr().String()
	require.NoError(t, l.Close())
	upload(t, cfg)
	stop := start(cfg, slog.New(slog.DiscardHandler))
	transport := &http.Transport{DisableKeepAlives: true}
	get := func(path string) (int, string) {
		resp, err := (&http.Client{Transport: transport}).Get("http://" + cfg.AdminAddress + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	require.Eventually(t, func() bool { code, _ := get("/readyz"); return code == http.StatusOK }, patience, 5*time.Millisecond)
	code, body := get("/metrics")
	require.Equal(t, http.StatusOK, code)
	for _, want := range []string{"weir_taskmanager_connected 1", "weir_taskmanager_slots_free 3", "weir_taskmanager_leader_term 1"} {
		require.Contains(t, body, want)
	}
	require.NoError(t, stop())
}

func TestInvalidConfigurationStartsNothing(t *testing.T) {
	cfg := testConfig(t, &leader{address: "127.0.0.1:1"})
	cfg.Slots = 0
	require.ErrorContains(t, taskmanager.Run(t.Context(), cfg, slog.New(slog.DiscardHandler)), "slots")
	require.NoDirExists(t, cfg.DataDir)
}
