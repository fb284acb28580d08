package stream

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// taskManager sends Prepare to a worker and Cancel once it has failed.
type taskManager struct {
	workerv1.UnimplementedWorkerServiceServer
	failures chan *workerv1.TaskFailed
}

func (m *taskManager) Control(st grpc.BidiStreamingServer[workerv1.ControlRequest, workerv1.ControlResponse]) error {
	if _, err := st.Recv(); err != nil {
		return err
	}
	if err := st.Send(&workerv1.ControlResponse{Command: &workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: &workerv1.Prepare{}}}}); err != nil {
		return err
	}
	for {
		r, err := st.Recv()
		if err != nil {
			return nil //nolint:nilerr // the worker has ended
		}
		if f := r.GetEvent().GetTaskFailed(); f != nil {
			m.failures <- f
			if err := st.Send(&workerv1.ControlResponse{Command: &workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}}}); err != nil {
				return err
			}
		}
	}
}

func TestReferencesMissingInAWorkerFailTheJob(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir") // the path of a unix socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	require.NoError(t, err)
	m := &taskManager{failures: make(chan *workerv1.TaskFailed, 1)}
	server := grpc.NewServer()
	workerv1.RegisterWorkerServiceServer(server, m)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})

	b := &binary{args: []string{"${env:NOT_SET}", "${file:/does/not/exist}"}, env: map[string]string{
		"WEIR_MODE": "worker", "WEIR_CONTROL_SOCKET": filepath.Join(dir, "s"), "WEIR_TOKEN": "t", "WEIR_WORK_DIR": filepath.Join(dir, "w"),
	}}
	require.Equal(t, 1, b.run(t))
	select {
	case f := <-m.failures:
		require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_FATAL, f.GetClass())
		require.Contains(t, f.GetMessage(), "argument 1: ${env:NOT_SET}: the environment variable is not set; argument 2: ${file:/does/not/exist}")
	case <-time.After(10 * time.Second):
		require.Fail(t, "no failure was reported")
	}
	require.Equal(t, "${env:NOT_SET}", b.seen[1], "the job function has not run")
}
