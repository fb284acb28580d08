package control_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/control"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// taskManager plays the TaskManager of one worker process.
type taskManager struct {
	workerv1.UnimplementedWorkerServiceServer
	events   chan *workerv1.Event
	commands chan *workerv1.Command
	fetched  chan *snapshotv1.Segment
	phases   int // of the start, as events told
}

func (m *taskManager) Control(stream grpc.BidiStreamingServer[workerv1.ControlRequest, workerv1.ControlResponse]) error {
	go func() {
		for {
			select {
			case c := <-m.commands:
				if stream.Send(&workerv1.ControlResponse{Command: c}) != nil {
					return
				}
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		m.events <- r.GetEvent()
	}
}

func (m *taskManager) FetchSegment(_ context.Context, r *workerv1.FetchSegmentRequest) (*workerv1.FetchSegmentResponse, error) {
	m.fetched <- r.GetSegment()
	return nil, status.Error(codes.DataLoss, "checksum differs")
}

func serve(t *testing.T) (*taskManager, *grpc.Server, control.Config) {
	m := &taskManager{
		events: make(chan *workerv1.Event, 100), commands: make(chan *workerv1.Command), fetched: make(chan *snapshotv1.Segment, 1),
	}
	// The path of a unix socket is short.
	dir, err := os.MkdirTemp("", "weir")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	lis, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := grpc.NewServer()
	workerv1.RegisterWorkerServiceServer(s, m)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(lis)
	}()
	t.Cleanup(func() { s.Stop(); <-served })
	return m, s, control.Config{
		Socket: socket, Token: "token", Dir: t.TempDir(),
		Plan: func(int) (*operator.Program, error) {
			return &operator.Program{Graph: &graph.Graph{Fingerprint: "f", MaxParallelism: 128}}, nil
		},
	}
}

// next returns the next event but for those that tell how far the start is, which it counts.
func (m *taskManager) next(t *testing.T) *workerv1.Event {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case e := <-m.events:
			if e.GetRestored() == nil {
				return e
			}
			m.phases++
		case <-deadline:
			require.Fail(t, "no event")
			return nil
		}
	}
}

func run(cfg control.Config) chan error {
	done := make(chan error, 1)
	go func() { done <- control.Run(context.Background(), cfg) }()
	return done
}

func result(t *testing.T, done chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		require.Fail(t, "Run does not return")
		return nil
	}
}

func TestConversation(t *testing.T) {
	m, _, cfg := serve(t)
	done := run(cfg)
	hello := m.next(t).GetHello()
	require.Equal(t, "token", hello.GetToken())
	require.Equal(t, uint32(version.ProtocolMax), hello.GetProtocolMax())
	require.Equal(t, uint32(os.Getpid()), hello.GetPid())
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: &workerv1.Prepare{
		Fingerprint: "f", Token: "secret of the attempt", BindHost: "127.0.0.1", AdvertiseHost: "127.0.0.1",
	}}}
	require.Contains(t, m.next(t).GetPrepared().GetDataAddress(), "127.0.0.1:")
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{}}}
	require.NotNil(t, m.next(t).GetStarted())
	require.Positive(t, m.phases, "nothing told how far the start was")
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}}
	for e := m.next(t); e.GetClosed() == nil; e = m.next(t) {
		require.NotNil(t, e.GetStatistics())
	}
	require.NoError(t, result(t, done))
}

func TestLostTaskManager(t *testing.T) {
	m, s, cfg := serve(t)
	done := run(cfg)
	m.next(t)
	s.Stop()
	require.ErrorIs(t, result(t, done), control.ErrDisconnected)
}

func TestFailureIsToldBeforeTheEnd(t *testing.T) {
	m, _, cfg := serve(t)
	cfg.Plan = func(int) (*operator.Program, error) { return nil, errors.New("no such topic") }
	done := run(cfg)
	m.next(t)
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: &workerv1.Prepare{}}}
	require.Contains(t, m.next(t).GetTaskFailed().GetMessage(), "no such topic")
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}}
	require.ErrorContains(t, result(t, done), "no such topic")
}

func TestRestorePointIsFetchedByTheTaskManager(t *testing.T) {
	m, _, cfg := serve(t)
	done := run(cfg)
	m.next(t)
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: &workerv1.Prepare{
		Fingerprint: "f", Restore: &workerv1.RestorePoint{Checkpoint: 3, Metadata: &snapshotv1.Segment{Name: "c/metadata"}},
	}}}
	f := m.next(t).GetTaskFailed()
	require.Contains(t, f.GetMessage(), "checksum differs")
	require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS, f.GetClass())
	require.Equal(t, 1, strings.Count(f.GetMessage(), "c/metadata"), f.GetMessage())
	require.Equal(t, "c/metadata", (<-m.fetched).GetName())
	m.commands <- &workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}}
	require.Error(t, result(t, done))
}
