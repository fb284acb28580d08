package jobmanager_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/statebackend/blob"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newReader(b []byte) io.Reader { return bytes.NewReader(b) }

func testLogger(t *testing.T) *slog.Logger {
	if os.Getenv("WEIR_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("test", t.Name())
}

// member is a JobManager that can be stopped and started again over the same data.
type member struct {
	t      *testing.T
	cfg    jobmanager.Config
	server *jobmanager.Server
	cancel context.CancelFunc
	done   chan error
}

func testConfig(dir, storage string) jobmanager.Config {
	cfg := jobmanager.Default()
	cfg.DataDir = dir
	cfg.Storage = storage
	cfg.Listen, cfg.RaftListen, cfg.Admin = "127.0.0.1:0", "127.0.0.1:0", ""
	cfg.RaftHeartbeat, cfg.RaftElection = 100*time.Millisecond, 100*time.Millisecond
	cfg.HeartbeatInterval, cfg.HeartbeatTimeout = 100*time.Millisecond, 3*time.Second
	cfg.ReconnectGrace, cfg.RegisterGrace = time.Second, 5*time.Second
	cfg.CancelDeadline, cfg.ShutdownTimeout = 500*time.Millisecond, 5*time.Second
	cfg.RecoveryBudget = 5 * time.Second
	return cfg
}

func (m *member) start() {
	s, err := jobmanager.Start(m.cfg, testLogger(m.t))
	require.NoError(m.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m.server, m.cancel, m.done = s, cancel, make(chan error, 1)
	if m.cfg.Listen == "127.0.0.1:0" {
		m.cfg.Listen = s.Address() // keep the port over a restart
	}
	go func() { m.done <- s.Run(ctx) }()
}

func (m *member) stop() {
	if m.cancel == nil {
		return
	}
	m.cancel()
	require.NoError(m.t, <-m.done)
	m.cancel = nil
}

type cluster struct {
	t       *testing.T
	members []*member
	fakes   *fakes
	bucket  blob.Bucket
	storage string
}

// newCluster starts n JobManagers.
func newCluster(t *testing.T, n int) *cluster {
	storage := "file://" + filepath.Join(t.TempDir(), "storage")
	require.NoError(t, os.MkdirAll(storage[len("file://"):], 0o755))
	bucket, err := blob.OpenURL(context.Background(), storage)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, bucket.Close()) })
	c := &cluster{t: t, bucket: bucket, storage: storage}
	c.fakes = newFakes(t, bucket)
	var list []jobmanager.Member
	if n > 1 {
		for i := range n {
			list = append(list, jobmanager.Member{ID: "jm" + string(rune('1'+i)), RaftAddress: freeAddress(t)})
		}
	}
	for i := range n {
		cfg := testConfig(filepath.Join(t.TempDir(), "data"), storage)
		if n > 1 {
			cfg.ID, cfg.RaftListen, cfg.Members = list[i].ID, list[i].RaftAddress, list
			cfg.RaftHeartbeat, cfg.RaftElection = time.Second, time.Second
		}
		m := &member{t: t, cfg: cfg}
		m.start()
		c.members = append(c.members, m)
		t.Cleanup(m.stop)
	}
	return c
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func (c *cluster) addresses() []string {
	var out []string
	for _, m := range c.members {
		out = append(out, m.cfg.Listen)
	}
	return out
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited in vain until "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(grpcerr.UnaryClientInterceptor))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// leader waits for a leader that serves and returns it.
func (c *cluster) leader() *member {
	c.t.Helper()
	var found *member
	eventually(c.t, "a leader serves", func() bool {
		for _, m := range c.members {
			if m.cancel == nil {
				continue
			}
			if _, err := m.server.Leader(); err == nil {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

func (c *cluster) jobs() jobv1.JobServiceClient {
	return jobv1.NewJobServiceClient(dial(c.t, c.leader().cfg.Listen))
}

func (c *cluster) upload(content []byte) string {
	c.t.Helper()
	sum := sha256.Sum256(content)
	sha := hex.EncodeToString(sum[:])
	stream, err := c.jobs().UploadArtifact(c.t.Context())
	require.NoError(c.t, err)
	require.NoError(c.t, stream.Send(&jobv1.UploadArtifactRequest{Sha256: sha, Size: uint64(len(content)), Chunk: content[:len(content)/2]}))
	require.NoError(c.t, stream.Send(&jobv1.UploadArtifactRequest{Chunk: content[len(content)/2:]}))
	resp, err := stream.CloseAndRecv()
	require.NoError(c.t, err)
	require.Equal(c.t, sha, resp.GetSha256())
	return sha
}

func (c *cluster) waitForTaskManagers(n int) {
	c.t.Helper()
	eventually(c.t, "taskmanagers are registered", func() bool {
		l, err := c.leader().server.Leader()
		if err != nil {
			return false
		}
		connected := 0
		for _, tm := range l.Registry.TaskManagers() {
			if tm.Connected {
				connected++
			}
		}
		return connected == n
	})
}

func (c *cluster) submit(name string) string {
	c.t.Helper()
	sha := c.upload([]byte("job binary"))
	req := &jobv1.SubmitJobRequest{RequestId: "submit-" + name, Name: name, ArtifactSha256: sha}
	resp, err := c.jobs().SubmitJob(c.t.Context(), req)
	require.NoError(c.t, err)
	again, err := c.jobs().SubmitJob(c.t.Context(), req)
	require.NoError(c.t, err)
	require.Equal(c.t, resp.GetJobId(), again.GetJobId(), "a repeated request id names the same job")
	return resp.GetJobId()
}

func (c *cluster) job(id string) *jobv1.Job {
	c.t.Helper()
	resp, err := c.jobs().GetJob(c.t.Context(), &jobv1.GetJobRequest{Job: id})
	require.NoError(c.t, err)
	return resp.GetJob()
}

func (c *cluster) waitFor(id string, what string, ok func(*jobv1.Job) bool) *jobv1.Job {
	c.t.Helper()
	client := c.jobs()
	var job *jobv1.Job
	eventually(c.t, what, func() bool {
		resp, err := client.GetJob(c.t.Context(), &jobv1.GetJobRequest{Job: id})
		if err != nil { // the leadership may have moved on
			client = c.jobs()
			return false
		}
		job = resp.GetJob()
		return ok(job)
	})
	return job
}

func inState(s jobv1.JobState) func(*jobv1.Job) bool {
	return func(j *jobv1.Job) bool { return j.GetState() == s }
}

func (c *cluster) info(m *member) *clusterv1.GetInfoResponse {
	resp, err := clusterv1.NewMembershipServiceClient(dial(c.t, m.cfg.Listen)).GetInfo(c.t.Context(), &clusterv1.GetInfoRequest{})
	require.NoError(c.t, err)
	return resp
}
