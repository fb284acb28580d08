package supervisor

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/keepalive"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// maxMessage bounds one control message in bytes. Snapshot handles travel in events; what is larger is spilled to a file.
const maxMessage = 64 << 20

// control serves one worker on its socket.
type control struct {
	workerv1.UnimplementedWorkerServiceServer
	w      *worker
	server *grpc.Server
	serve  sync.WaitGroup
	once   sync.Once
}

// serve opens the worker's socket.
func (w *worker) serve() (*control, error) {
	ln, err := net.Listen("unix", w.socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(w.socket, 0o600); err != nil {
		_ = ln.Close()
		return nil, err
	}
	c := &control{w: w, server: grpc.NewServer(append(keepalive.FixedServerWindow(),
		grpc.Creds(newSocketCredentials()),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		keepalive.Off(), grpc.WaitForHandlers(true),
	)...)}
	workerv1.RegisterWorkerServiceServer(c.server, c)
	c.serve.Go(func() { _ = c.server.Serve(ln) }) // it returns at Stop, which removes the socket too
	return c, nil
}

// close ends the conversation and waits until no event of it can come any more.
func (c *control) close() {
	c.once.Do(func() {
		c.server.Stop()
		c.serve.Wait()
	})
}

// Control relays commands and events.
func (c *control) Control(stream grpc.BidiStreamingServer[workerv1.ControlRequest, workerv1.ControlResponse]) error {
	w := c.w
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := w.admit(first.GetEvent().GetHello()); err != nil {
		return err
	}
	visitorOf(stream.Context()).admitted.Store(true)
	defer w.disconnected()
	ended := make(chan struct{})
	var ear ear
	if first.GetEvent().GetHello().GetProtocolMax() >= version.ProtocolHeartbeat {
		defer w.s.listen(&ear)()
	}
	// It ends when the worker closes the stream, when the connection breaks, or when this method returns.
	c.serve.Go(func() {
		defer close(ended)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			ear.heard.Store(true)
			if m.GetEvent().GetHeartbeat() == nil {
				w.event(m.GetEvent())
			}
		}
	})
	for {
		for _, cmd := range w.take() {
			if err := stream.Send(&workerv1.ControlResponse{Command: cmd}); err != nil {
				return err
			}
			if cmd.GetCompleteCheckpoint() != nil {
				faultpoint.Hit(faultpoint.NoticeRelayed)
			}
		}
		select {
		case <-w.wake:
		case <-ear.stalled():
			w.mu.Lock()
			w.silent = true
			w.mu.Unlock()
			return status.Errorf(codes.DeadlineExceeded, "nothing heard for %v", w.s.cfg.StallTimeout)
		case <-ended:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// admit checks a worker's Hello.
func (w *worker) admit(h *workerv1.Hello) error {
	if h == nil || subtle.ConstantTimeCompare([]byte(h.GetToken()), []byte(w.token)) != 1 {
		return status.Error(codes.PermissionDenied, "the first message must be a hello with the token of this worker")
	}
	if _, ok := version.Common(h.GetProtocolMin(), h.GetProtocolMax()); !ok {
		err := protocolMismatch(h.GetProtocolMin(), h.GetProtocolMax())
		w.fail(fatal(err), "")
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	if w.s.cfg.Encrypt && h.GetProtocolMax() < version.ProtocolEncrypt {
		w.fail(fatal(errCannotEncrypt), "")
		return status.Error(codes.FailedPrecondition, errCannotEncrypt.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hello {
		return status.Error(codes.AlreadyExists, "this worker has connected before")
	}
	w.hello = true
	close(w.connected)
	return nil
}

func (w *worker) disconnected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lost {
		w.lost = true
		close(w.broken)
	}
}

// event relays an event to the leader.
func (w *worker) event(e *workerv1.Event) {
	switch {
	case e.GetCheckpointAck() != nil:
		faultpoint.Hit(faultpoint.AckAtTaskManager)
	case e.GetCommitAcked() != nil:
		faultpoint.Hit(faultpoint.CommitAckAtTaskManager)
	}
	w.mu.Lock()
	w.failed = w.failed || e.GetTaskFailed() != nil
	w.progress.event(e)
	w.mu.Unlock()
	w.s.reportEvent(w.key, e)
}

// UploadSegment makes a file of the worker's scratch directory durable.
func (c *control) UploadSegment(ctx context.Context, m *workerv1.UploadSegmentRequest) (*workerv1.UploadSegmentResponse, error) {
	w := c.w
	if err := known(ctx); err != nil {
		return nil, err
	}
	path := filepath.Clean(m.GetLocalPath())
	if !strings.HasPrefix(path, w.dir+string(filepath.Separator)) {
		return nil, status.Errorf(codes.InvalidArgument, "%s is not in the worker's scratch directory %s", path, w.dir)
	}
	own := w.start.GetPrepare().GetClusterId() + "/jobs/" + w.key.job + "/"
	if !strings.HasPrefix(m.GetName(), own) {
		return nil, status.Errorf(codes.InvalidArgument, "%q is not below %q", m.GetName(), own)
	}
	if err := faultpoint.Err(faultpoint.UploadDue); err != nil {
		return nil, storageStatus(err)
	}
	if err := w.scope.Upload(ctx, path, m.GetName(), m.GetSize(), m.GetCrc32C()); err != nil {
		return nil, storageStatus(err)
	}
	faultpoint.Hit(faultpoint.Uploaded)
	return &workerv1.UploadSegmentResponse{}, nil
}

// FetchSegment returns a verified local copy.
func (c *control) FetchSegment(ctx context.Context, m *workerv1.FetchSegmentRequest) (*workerv1.FetchSegmentResponse, error) {
	if err := known(ctx); err != nil {
		return nil, err
	}
	if err := faultpoint.Err(faultpoint.FetchDue); err != nil {
		return nil, storageStatus(err)
	}
	path, err := c.w.scope.Fetch(ctx, m.GetSegment())
	if err != nil {
		return nil, storageStatus(err)
	}
	faultpoint.Hit(faultpoint.Fetched)
	return &workerv1.FetchSegmentResponse{LocalPath: path}, nil
}

// ReleaseSegments lets go of local copies, or has them read again before the next use.
func (c *control) ReleaseSegments(ctx context.Context, m *workerv1.ReleaseSegmentsRequest) (*workerv1.ReleaseSegmentsResponse, error) {
	if err := known(ctx); err != nil {
		return nil, err
	}
	tell := c.w.scope.Release
	if m.GetDistrust() {
		tell = c.w.scope.Distrust
	}
	if err := tell(ctx, m.GetNames()...); err != nil {
		return nil, storageStatus(err)
	}
	return &workerv1.ReleaseSegmentsResponse{}, nil
}

// known refuses calls over a connection on which no valid Hello has come.
func known(ctx context.Context) error {
	if visitorOf(ctx).admitted.Load() {
		return nil
	}
	return status.Error(codes.PermissionDenied, "the worker has not said hello on this connection")
}

// storageStatus gives an error of the segment store a code that the worker can act on.
func storageStatus(err error) error {
	code := codes.Unavailable
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, segmentstore.ErrClosed):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, blob.ErrNotExist):
		code = codes.NotFound
	case errors.Is(err, segmentstore.ErrCorrupt):
		code = codes.DataLoss
	case errors.Is(err, blob.ErrExists):
		code = codes.AlreadyExists
	case errors.Is(err, blob.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		code = codes.ResourceExhausted
	}
	// The worker knows the file's name, and names it.
	var lost *statebackend.LostError
	var storage *statebackend.StorageError
	switch {
	case errors.As(err, &lost):
		err = lost.Err
	case errors.As(err, &storage):
		err = storage.Err
	}
	return status.Error(code, err.Error())
}

var errCannotEncrypt = errors.New("the cluster has TLS, and the job binary is too old to encrypt what its workers exchange: build the job with a newer version of the SDK")

func protocolMismatch(theirMin, theirMax uint32) error {
	return fmt.Errorf("the job binary speaks protocol versions %d to %d, this TaskManager (weir %s) %d to %d: build the job with a matching version of the SDK",
		theirMin, theirMax, version.Version, version.ProtocolMin, version.ProtocolMax)
}
