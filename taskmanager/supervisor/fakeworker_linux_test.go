package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
)

// TestMain makes the test binary a job binary when a supervisor starts it; its first argument says how it behaves.
func TestMain(m *testing.M) {
	behaviour := ""
	if len(os.Args) > 1 {
		behaviour = os.Args[1]
	}
	switch os.Getenv("WEIR_MODE") {
	case "plan":
		os.Exit(fakePlan(behaviour))
	case "worker":
		os.Exit(fakeWorker(behaviour))
	}
	if behaviour == "supervise-until-killed" {
		superviseUntilKilled()
	}
	goleak.VerifyTestMain(m)
}

func fakePlan(behaviour string) int {
	result := &jobv1.PlanResult{Graph: &jobv1.Graph{Name: os.Getenv("WEIR_JOB_NAME")}, ProtocolMin: 1, ProtocolMax: 1}
	switch behaviour {
	case "not-a-job":
		fmt.Println("usage: something else")
		return 0
	case "hang":
		fmt.Println("waiting for a broker")
		time.Sleep(time.Hour)
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: no such column")
		return 2
	case "silent":
		return 3
	case "future":
		result.ProtocolMin, result.ProtocolMax = 7, 9
	case "graph-errors":
		result.Graph, result.Errors = nil, []string{"operator x: no name"}
	case "environment":
		result.Graph.Name = strings.Join(os.Args[2:], "|") + "|p=" + os.Getenv("WEIR_PARALLELISM") + "|secret=" + os.Getenv("WEIR_TM_SECRET") +
			"|" + os.Getenv("WEIR_JOB_DEFAULT_NAME")
	case "network":
		result.Graph.Name = "no network"
		if l, err := net.Dial("tcp", os.Args[2]); err == nil {
			l.Close()
			result.Graph.Name = "network"
		}
	}
	raw, err := proto.Marshal(result)
	if err != nil {
		return 1
	}
	if err := os.WriteFile(os.Getenv("WEIR_PLAN_OUTPUT"), raw, 0o600); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// fakeWorker connects and behaves. It echoes commands: Start with Started, CompleteCheckpoint with CommitAcked, Finish with Closed.
func fakeWorker(behaviour string) int {
	fmt.Println("worker behaves:", behaviour)
	switch behaviour {
	case "never-connects":
		time.Sleep(time.Hour)
	case "panics-at-once":
		panic("bad configuration")
	case "crashes":
		fmt.Fprintln(os.Stderr, "fatal error: concurrent map writes")
		for i := range 200 {
			fmt.Fprintf(os.Stderr, "goroutine %d [running]:\n", i)
		}
		fmt.Fprintln(os.Stderr, "rip    0x46e1a1")
		return 2
	case "floods":
		for i := range 20000 {
			fmt.Printf("line %d %s\n", i, strings.Repeat("x", 90))
		}
	}
	conn, err := grpc.NewClient("unix:"+os.Getenv("WEIR_CONTROL_SOCKET"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 1
	}
	client := workerv1.NewWorkerServiceClient(conn)
	if behaviour == "uploads-before-hello" {
		_, err := client.UploadSegment(context.Background(), &workerv1.UploadSegmentRequest{})
		fmt.Println("refused:", err)
	}
	stream, err := client.Control(context.Background())
	if err != nil {
		return 1
	}
	hello := &workerv1.Hello{ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax, Token: os.Getenv("WEIR_TOKEN"), Pid: uint32(os.Getpid())}
	switch behaviour {
	case "wrong-token":
		hello.Token = "guess"
	case "future":
		hello.ProtocolMin, hello.ProtocolMax = 7, 9
	case "clear":
		hello.ProtocolMax = version.ProtocolEncrypt - 1
	case "old":
		hello.ProtocolMax = version.ProtocolHeartbeat - 1
	}
	var sending sync.Mutex
	said := false // all that it has to say
	send := func(e *workerv1.Event) {
		sending.Lock()
		defer sending.Unlock()
		if !said {
			_ = stream.Send(&workerv1.ControlRequest{Event: e})
		}
	}
	closeSend := func() {
		sending.Lock()
		defer sending.Unlock()
		said = true
		_ = stream.CloseSend()
	}
	send(&workerv1.Event{Event: &workerv1.Event_Hello{Hello: hello}})
	if behaviour != "old" && behaviour != "mute" {
		go func() {
			for range time.Tick(50 * time.Millisecond) {
				send(&workerv1.Event{Event: &workerv1.Event_Heartbeat{Heartbeat: &workerv1.Heartbeat{}}})
			}
		}()
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if behaviour == "outlives" {
				time.Sleep(time.Hour) // and prints nothing, which would end it too: nobody reads
			}
			fmt.Println("control ended:", err)
			if errors.Is(err, io.EOF) {
				return 0
			}
			return 1
		}
		switch c := m.GetCommand().GetCommand().(type) {
		case *workerv1.Command_Prepare:
			address := c.Prepare.GetBindHost() + "/" + c.Prepare.GetAdvertiseHost()
			switch behaviour {
			case "segments":
				address = useSegments(client)
			case "child":
				address = startChild()
			case "environment":
				address = strings.Join([]string{os.Getenv("WEIR_TM_SECRET") + os.Getenv("WEIR_API_TOKEN"), os.Getenv("VISIBLE"), filepath.Base(os.Getenv("WEIR_WORK_DIR"))}, "|")
			}
			send(&workerv1.Event{Event: &workerv1.Event_Prepared{Prepared: &workerv1.Prepared{DataAddress: address}}})
		case *workerv1.Command_Start:
			switch behaviour {
			case "fails":
				send(&workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{Vertex: "v", Message: "bad record"}}})
				closeSend()
				continue
			case "exits":
				fmt.Println("last words")
				return 3
			case "is-killed":
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			case "freezes":
				_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			case "hangs-up":
				conn.Close()
				select {}
			}
			send(&workerv1.Event{Event: &workerv1.Event_Started{Started: &workerv1.Started{}}})
		case *workerv1.Command_CompleteCheckpoint:
			send(&workerv1.Event{Event: &workerv1.Event_CommitAcked{CommitAcked: &workerv1.CommitAcked{Checkpoint: c.CompleteCheckpoint.GetCheckpoint()}}})
		case *workerv1.Command_Finish:
			send(&workerv1.Event{Event: &workerv1.Event_Closed{Closed: &workerv1.Closed{}}})
			closeSend()
		case *workerv1.Command_Cancel:
			if behaviour == "ignores-cancel" {
				signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
				continue
			}
			return 0
		}
	}
}

// useSegments uploads and fetches a file and tries what must be refused.
func useSegments(client workerv1.WorkerServiceClient) string {
	ctx, data := context.Background(), []byte("state")
	path := filepath.Join(os.Getenv("WEIR_WORK_DIR"), "segment")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err.Error()
	}
	sum := crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli))
	upload := func(path, name string) error {
		_, err := client.UploadSegment(ctx, &workerv1.UploadSegmentRequest{LocalPath: path, Name: name, Size: 5, Crc32C: sum})
		return err
	}
	if upload("/etc/passwd", "c1/jobs/j1/state/x") == nil || upload(path, "c1/jobs/other/state/x") == nil {
		return "a foreign file was taken"
	}
	// Another process that has found the socket.
	other, err := grpc.NewClient("unix:"+os.Getenv("WEIR_CONTROL_SOCKET"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err.Error()
	}
	defer other.Close()
	_, err = workerv1.NewWorkerServiceClient(other).UploadSegment(ctx, &workerv1.UploadSegmentRequest{LocalPath: path, Name: "c1/jobs/j1/state/y", Size: 5, Crc32C: sum})
	if status.Code(err) != codes.PermissionDenied {
		return fmt.Sprintf("a connection without a hello was served: %v", err)
	}
	if err := upload(path, "c1/jobs/j1/state/x"); err != nil {
		return err.Error()
	}
	got, err := client.FetchSegment(ctx, &workerv1.FetchSegmentRequest{
		Segment: &snapshotv1.Segment{Name: "c1/jobs/j1/state/x", Size: 5, Crc32C: sum},
	})
	if err != nil {
		return err.Error()
	}
	content, err := os.ReadFile(got.GetLocalPath())
	if err != nil || string(content) != "state" {
		return fmt.Sprint("fetched ", string(content), err)
	}
	if _, err := workerv1.NewWorkerServiceClient(other).ReleaseSegments(ctx, &workerv1.ReleaseSegmentsRequest{}); status.Code(err) != codes.PermissionDenied {
		return fmt.Sprintf("a connection without a hello was served: %v", err)
	}
	if _, err := client.ReleaseSegments(ctx, &workerv1.ReleaseSegmentsRequest{Names: []string{"c1/jobs/j1/state/x"}}); err != nil {
		return err.Error()
	}
	return "segments work"
}

func startChild() string {
	child := exec.Command("sleep", "3600")
	child.Stdout = os.Stdout // keeps the worker's output open
	if err := child.Start(); err != nil {
		return err.Error()
	}
	return fmt.Sprint(child.Process.Pid)
}
