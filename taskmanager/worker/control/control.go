package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/keepalive"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker"
)

const (
	// maxMessage bounds a control message; large snapshots travel by reference.
	maxMessage = 64 << 20
	// farewell bounds how long a worker that has ended waits for its last events to be taken.
	farewell = 2 * time.Second
)

// ErrDisconnected is returned when the TaskManager is gone.
var ErrDisconnected = errors.New("connection to the TaskManager is lost")

// Config is what worker mode is started with.
type Config struct {
	// Socket is the path of the TaskManager's unix socket for this process.
	Socket string
	// Token identifies this process to the TaskManager.
	Token string
	// Dir is the process's scratch directory.
	Dir string
	// Plan compiles the job; see worker.Config.
	Plan func(parallelism int) (*operator.Program, error)
	// Logger defaults to one that discards.
	Logger *slog.Logger
}

// Run serves as a worker until it is finished, canceled or failed, or the TaskManager is gone. The process should exit at once when
// it returns: with code 0 for nil and 1 otherwise.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	conn, err := grpc.NewClient("unix:"+cfg.Socket, append(keepalive.FixedClientWindow(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)...)
	if err != nil {
		return fmt.Errorf("connect to the TaskManager: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client := workerv1.NewWorkerServiceClient(conn)
	stream, err := client.Control(ctx)
	if err != nil {
		return fmt.Errorf("connect to the TaskManager: %w", err)
	}
	out := newOutbox()
	out.put(&workerv1.Event{Event: &workerv1.Event_Hello{Hello: &workerv1.Hello{
		ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax, Token: cfg.Token, Pid: uint32(os.Getpid()),
	}}})
	w := worker.New(worker.Config{
		Plan: cfg.Plan, Store: segments{client}, Dir: cfg.Dir, Logger: cfg.Logger, Report: out.put,
	})
	ended := make(chan error, 1)
	go func() { ended <- w.Wait() }()
	lost := make(chan error, 2)
	go func() { lost <- receive(stream, w) }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		if err := out.pump(stream); err != nil {
			lost <- err
		}
	}()
	select {
	case err = <-ended:
	case reason := <-lost:
		select {
		case err = <-ended:
			return err
		default:
		}
		// The process ends with the return; until then the tasks are told to stop.
		out.close()
		go w.Close()
		return fmt.Errorf("%w: %w", ErrDisconnected, reason)
	}
	out.close()
	patience := time.NewTimer(farewell)
	defer patience.Stop()
	select {
	case <-sent:
		select {
		case reason := <-lost: // the TaskManager has taken everything and ended the stream
			cfg.Logger.Debug("conversation ended", "reason", reason)
		case <-patience.C:
		}
	case <-patience.C:
	}
	return err
}

func receive(stream grpc.BidiStreamingClient[workerv1.ControlRequest, workerv1.ControlResponse], w *worker.Worker) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("it ended the conversation")
			}
			return err
		}
		w.Do(r.GetCommand())
	}
}
