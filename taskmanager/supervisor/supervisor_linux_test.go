package supervisor_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
	"github.com/weir-stream/weir/taskmanager/supervisor"
)

const patience = 20 * time.Second

// reports collects what a supervisor tells the leader.
type reports struct {
	mu   sync.Mutex
	list []*clusterv1.SessionRequest
}

func (r *reports) add(m *clusterv1.SessionRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, m)
}

func (r *reports) all() []*clusterv1.SessionRequest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*clusterv1.SessionRequest(nil), r.list...)
}

// await returns what pick finds first.
func await[T any](t *testing.T, r *reports, pick func(*clusterv1.SessionRequest) (T, bool)) T {
	t.Helper()
	var found T
	require.Eventually(t, func() bool {
		for _, m := range r.all() {
			if v, ok := pick(m); ok {
				found = v
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond)
	return found
}

func exited(attempt uint64) func(*clusterv1.SessionRequest) (*clusterv1.WorkerExited, bool) {
	return func(m *clusterv1.SessionRequest) (*clusterv1.WorkerExited, bool) {
		e := m.GetWorkerExited()
		return e, e != nil && e.GetAttempt() == attempt
	}
}

func event[T any](get func(*workerv1.Event) *T) func(*clusterv1.SessionRequest) (*T, bool) {
	return func(m *clusterv1.SessionRequest) (*T, bool) {
		e := get(m.GetWorkerEvent().GetEvent())
		return e, e != nil
	}
}

type fixture struct {
	cfg      supervisor.Config
	s        *supervisor.Supervisor
	reports  *reports
	artifact string
}

// testConfig returns a configuration whose bucket holds the test binary as an artifact.
func testConfig(dir string) (supervisor.Config, string, error) {
	bucket, err := blob.OpenURL(context.Background(), "file://"+filepath.Join(dir, "storage"))
	if err != nil {
		return supervisor.Config{}, "", err
	}
	self, err := os.Executable()
	if err != nil {
		return supervisor.Config{}, "", err
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		return supervisor.Config{}, "", err
	}
	sum := sha256.Sum256(binary)
	hash := hex.EncodeToString(sum[:])
	if err := bucket.Put(context.Background(), "c1/artifacts/"+hash, bytes.NewReader(binary)); err != nil {
		return supervisor.Config{}, "", err
	}
	segments, err := segmentstore.Open(segmentstore.Config{Dir: filepath.Join(dir, "data", "segments"), Bucket: bucket})
	return supervisor.Config{
		Dir: filepath.Join(dir, "data"), Slots: 4, Bucket: bucket, Segments: segments,
		BindHost: "127.0.0.1", AdvertiseHost: "me",
		CancelDeadline: 3 * time.Second, ConnectTimeout: patience, StallTimeout: 2 * time.Second, PlanTimeout: patience,
		LogRetention: 1 << 20, LogPerWorker: 256 << 10, ArtifactCache: 1 << 30,
		Logger: slog.New(slog.DiscardHandler),
	}, hash, err
}

func newFixture(t *testing.T, change ...func(*supervisor.Config)) *fixture {
	t.Setenv("WEIR_TM_SECRET", "hidden")
	t.Setenv("WEIR_API_TOKEN", "hidden too")
	t.Setenv("VISIBLE", "seen")
	dir, err := os.MkdirTemp("", "weir-supervisor-") // short enough for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	cfg, hash, err := testConfig(dir)
	require.NoError(t, err)
	f := &fixture{cfg: cfg, reports: &reports{}, artifact: hash}
	f.cfg.Report = f.reports.add
	for _, c := range change {
		c(&f.cfg)
	}
	f.s, err = supervisor.New(f.cfg)
	require.NoError(t, err)
	f.s.SetCluster("c1")
	t.Cleanup(func() {
		f.s.Close(context.Background())
		require.NoError(t, cfg.Segments.Close())
	})
	return f
}

func (f *fixture) start(attempt uint64, behaviour string) {
	f.s.Start(&clusterv1.StartWorker{
		ArtifactSha256: f.artifact, Args: []string{behaviour},
		Prepare: &workerv1.Prepare{ClusterId: "c1", JobId: "j1", Attempt: attempt, Tasks: []*workerv1.TaskAssignment{
			{Vertex: "a", Subtask: 0}, {Vertex: "b", Subtask: 0}, {Vertex: "a", Subtask: 1},
		}},
	})
}

func (f *fixture) command(c *workerv1.Command) {
	f.s.Command(&clusterv1.WorkerCommand{JobId: "j1", Attempt: 1, Command: c})
}

var (
	startCommand  = &workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{}}}
	finishCommand = &workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}}
)

func completeCommand(n uint64) *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_CompleteCheckpoint{CompleteCheckpoint: &workerv1.CompleteCheckpoint{Checkpoint: n}}}
}

func TestWorkerTakesCommandsInOrderAndFinishes(t *testing.T) {
	f := newFixture(t)
	f.start(1, "obeys")
	require.Equal(t, 2, f.s.FreeSlots())
	require.Len(t, f.s.Running(), 1)
	f.command(startCommand)
	for n := range uint64(50) {
		f.command(completeCommand(n))
	}
	f.command(finishCommand)
	e := await(t, f.reports, exited(1))
	require.True(t, e.GetExpected())
	require.Zero(t, e.GetExitCode())

	var seen []string
	for _, m := range f.reports.all() {
		switch e := m.GetWorkerEvent().GetEvent().GetEvent().(type) {
		case *workerv1.Event_Prepared:
			seen = append(seen, "prepared "+e.Prepared.GetDataAddress())
		case *workerv1.Event_Started:
			seen = append(seen, "started")
		case *workerv1.Event_CommitAcked:
			seen = append(seen, fmt.Sprint(e.CommitAcked.GetCheckpoint()))
		case *workerv1.Event_Closed:
			seen = append(seen, "closed")
		}
		if m.GetWorkerExited() != nil {
			seen = append(seen, "exited")
		}
	}
	want := []string{"prepared 127.0.0.1/me", "started"}
	for n := range 50 {
		want = append(want, strconv.Itoa(n))
	}
	require.Equal(t, append(want, "closed", "exited"), seen)
	require.Equal(t, 4, f.s.FreeSlots())
	for _, d := range []string{"work", "pids", "run"} {
		left, err := os.ReadDir(filepath.Join(f.cfg.Dir, d))
		require.NoError(t, err)
		require.Empty(t, left, d)
	}
}

func TestWorkerEnvironment(t *testing.T) {
	f := newFixture(t)
	f.start(1, "environment")
	p := await(t, f.reports, event((*workerv1.Event).GetPrepared))
	require.Equal(t, "|seen|j1-1", p.GetDataAddress(), "settings of the TaskManager stay its own")
}

func TestWorkerUsesSegments(t *testing.T) {
	f := newFixture(t)
	f.start(1, "segments")
	p := await(t, f.reports, event((*workerv1.Event).GetPrepared))
	require.Equal(t, "segments work", p.GetDataAddress())
}

func TestUnexpectedDeathIsReportedWithItsLastWords(t *testing.T) {
	for behaviour, want := range map[string]struct {
		message, tail, signal string
		code                  int32
	}{
		"panics-at-once": {"exited with code 2: panic: bad configuration", "panic: bad configuration", "", 2},
		"crashes":        {"exited with code 2: fatal error: concurrent map writes", "fatal error: concurrent map writes\n[...]\ngoroutine", "", 2},
		"exits":          {"exited with code 3", "last words", "", 3},
		"is-killed":      {"was killed", "worker behaves: is-killed", "SIGKILL", -1},
	} {
		t.Run(behaviour, func(t *testing.T) {
			f := newFixture(t)
			f.start(1, behaviour)
			f.command(startCommand)
			e := await(t, f.reports, exited(1))
			require.False(t, e.GetExpected())
			require.Equal(t, want.code, e.GetExitCode())
			require.Equal(t, want.signal, e.GetSignal())
			require.Contains(t, e.GetOutputTail(), want.tail)
			failed := await(t, f.reports, event((*workerv1.Event).GetTaskFailed))
			require.Contains(t, failed.GetMessage(), want.message)
			require.Contains(t, failed.GetOutputTail(), want.tail)
			require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_RESTART, failed.GetClass())
		})
	}
}

func TestOwnFailureReportIsNotRepeated(t *testing.T) {
	f := newFixture(t)
	f.start(1, "fails")
	f.command(startCommand)
	await(t, f.reports, exited(1))
	failures := 0
	for _, m := range f.reports.all() {
		if e := m.GetWorkerEvent().GetEvent().GetTaskFailed(); e != nil {
			failures++
			require.Equal(t, "bad record", e.GetMessage())
		}
	}
	require.Equal(t, 1, failures)
}

var ourVersions = fmt.Sprintf("%d to %d", version.ProtocolMin, version.ProtocolMax)

// Neither a worker that has nothing to say but heartbeats nor one that knows none is silent.
func TestQuietWorkersLive(t *testing.T) {
	for _, behaviour := range []string{"obeys", "old"} {
		t.Run(behaviour, func(t *testing.T) {
			f := newFixture(t, func(c *supervisor.Config) { c.StallTimeout = 400 * time.Millisecond })
			f.start(1, behaviour)
			f.command(startCommand)
			await(t, f.reports, event((*workerv1.Event).GetStarted))
			time.Sleep(3 * f.cfg.StallTimeout)
			for _, m := range f.reports.all() {
				require.Nil(t, m.GetWorkerEvent().GetEvent().GetTaskFailed())
				require.Nil(t, m.GetWorkerEvent().GetEvent().GetHeartbeat(), "heartbeats are not for the leader")
			}
			f.command(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}})
			await(t, f.reports, event((*workerv1.Event).GetClosed))
		})
	}
}

func TestSilentWorkersAreKilled(t *testing.T) {
	for behaviour, want := range map[string]string{
		"never-connects": "did not connect within 500ms",
		"wrong-token":    "exited with code 1",
		"freezes":        "stopped answering",
		"hangs-up":       "stopped answering",
		"mute":           "stopped answering",
	} {
		t.Run(behaviour, func(t *testing.T) {
			f := newFixture(t, func(c *supervisor.Config) {
				c.CancelDeadline = 300 * time.Millisecond
				if behaviour == "never-connects" {
					c.ConnectTimeout = 500 * time.Millisecond
				}
			})
			f.start(1, behaviour)
			f.command(startCommand)
			failed := await(t, f.reports, event((*workerv1.Event).GetTaskFailed))
			require.Contains(t, failed.GetMessage(), want)
			require.Contains(t, failed.GetOutputTail(), "worker behaves: "+behaviour)
			require.False(t, await(t, f.reports, exited(1)).GetExpected())
		})
	}
}

func TestProtocolMismatchIsFatalAndNamesBothSides(t *testing.T) {
	f := newFixture(t)
	f.start(1, "future")
	failed := await(t, f.reports, event((*workerv1.Event).GetTaskFailed))
	require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_FATAL, failed.GetClass())
	require.Contains(t, failed.GetMessage(), "7 to 9")
	require.Contains(t, failed.GetMessage(), ourVersions)
	await(t, f.reports, exited(1))
}

// Records must not travel in clear because a job binary knows no better.
func TestABinaryThatCannotEncryptIsRefusedWhereItShould(t *testing.T) {
	f := newFixture(t, func(c *supervisor.Config) { c.Encrypt = true })
	f.start(1, "clear")
	failed := await(t, f.reports, event((*workerv1.Event).GetTaskFailed))
	require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_FATAL, failed.GetClass())
	require.Contains(t, failed.GetMessage(), "too old to encrypt")
	await(t, f.reports, exited(1))
}

func TestStopKillsWhatIgnoresCancel(t *testing.T) {
	f := newFixture(t)
	f.start(1, "ignores-cancel")
	await(t, f.reports, event((*workerv1.Event).GetPrepared))
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 1, DeadlineMs: 200})
	e := await(t, f.reports, exited(1))
	require.True(t, e.GetExpected())
	require.Equal(t, "SIGKILL", e.GetSignal())
}

func TestStopGentlyAndAtOnce(t *testing.T) {
	f := newFixture(t)
	f.start(1, "obeys")
	await(t, f.reports, event((*workerv1.Event).GetPrepared))
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 1, DeadlineMs: 10000})
	e := await(t, f.reports, exited(1))
	require.True(t, e.GetExpected())
	require.Empty(t, e.GetSignal())

	f.start(2, "obeys")
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 2})
	require.True(t, await(t, f.reports, exited(2)).GetExpected())
}

func TestStopOfAnUnknownAttemptIsAnswered(t *testing.T) {
	f := newFixture(t)
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 5})
	require.True(t, await(t, f.reports, exited(5)).GetExpected())
	f.start(5, "obeys")
	require.Empty(t, f.s.Running(), "a start that was overtaken by its stop starts nothing")
	f.start(6, "obeys")
	require.Len(t, f.s.Running(), 1)
}

func TestHigherAttemptReplacesLower(t *testing.T) {
	f := newFixture(t)
	f.start(1, "obeys")
	await(t, f.reports, event((*workerv1.Event).GetPrepared))
	f.start(2, "obeys")
	require.True(t, await(t, f.reports, exited(1)).GetExpected())
	f.start(1, "obeys")
	require.Len(t, f.s.Running(), 1)
	require.EqualValues(t, 2, f.s.Running()[0].GetAttempt())
}

func TestChildrenOfAWorkerDieWithIt(t *testing.T) {
	f := newFixture(t)
	f.start(1, "child")
	p := await(t, f.reports, event((*workerv1.Event).GetPrepared))
	pid, err := strconv.Atoi(p.GetDataAddress())
	require.NoError(t, err)
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 1, DeadlineMs: 5000})
	await(t, f.reports, exited(1))
	requireDead(t, pid)
}

func TestMissingAndForeignBinaries(t *testing.T) {
	f := newFixture(t)
	put := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		hash := hex.EncodeToString(sum[:])
		require.NoError(t, f.cfg.Bucket.Put(t.Context(), "c1/artifacts/"+hash, strings.NewReader(content)))
		return hash
	}
	for attempt, c := range []struct{ hash, want string }{
		{strings.Repeat("ab", 32), "submit the job again"},
		{"nonsense", "not the SHA-256"},
		{put("\xcf\xfa\xed\xfe not for this machine"), "build it with GOOS=linux GOARCH="},
	} {
		f.artifact = c.hash
		n := uint64(attempt + 1)
		f.start(n, "obeys")
		await(t, f.reports, exited(n))
		failed := await(t, f.reports, func(m *clusterv1.SessionRequest) (*workerv1.TaskFailed, bool) {
			e := m.GetWorkerEvent().GetEvent().GetTaskFailed()
			return e, e != nil && m.GetWorkerEvent().GetAttempt() == n
		})
		require.Contains(t, failed.GetMessage(), c.want)
		require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_FATAL, failed.GetClass())
	}
}

func TestCorruptArtifactIsNotRun(t *testing.T) {
	f := newFixture(t)
	path := filepath.Join(strings.TrimPrefix(f.cfg.Bucket.URL(), "file://"), "c1/artifacts", f.artifact)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.Truncate(path, 1000))
	f.start(1, "obeys")
	failed := await(t, f.reports, event((*workerv1.Event).GetTaskFailed))
	require.Contains(t, failed.GetMessage(), "SHA-256")
	require.Equal(t, workerv1.FailureClass_FAILURE_CLASS_STORAGE, failed.GetClass())
}

func TestCloseStopsEveryWorker(t *testing.T) {
	f := newFixture(t)
	f.start(1, "ignores-cancel")
	await(t, f.reports, event((*workerv1.Event).GetPrepared))
	f.s.Close(context.Background())
	require.True(t, await(t, f.reports, exited(1)).GetExpected())
	require.Empty(t, f.s.Running())
}

func TestLogsAreBoundedAndRead(t *testing.T) {
	f := newFixture(t)
	f.start(1, "floods")
	await(t, f.reports, event((*workerv1.Event).GetPrepared))
	f.s.Stop(&clusterv1.StopWorker{JobId: "j1", Attempt: 1, DeadlineMs: 5000})
	e := await(t, f.reports, exited(1))
	require.LessOrEqual(t, strings.Count(e.GetOutputTail(), "\n"), 50)
	require.Contains(t, e.GetOutputTail(), "line 19999 ")
	var size int64
	files, err := filepath.Glob(filepath.Join(f.cfg.Dir, "logs/j1/*"))
	require.NoError(t, err)
	for _, p := range files {
		info, err := os.Stat(p)
		require.NoError(t, err)
		size += info.Size()
	}
	require.LessOrEqual(t, size, f.cfg.LogPerWorker)
	require.Greater(t, size, f.cfg.LogPerWorker/2)

	read := func(id string, lines uint32) string {
		f.s.ReadLogs(&clusterv1.ReadLogs{ReadId: id, JobId: "j1", TailLines: lines})
		end := await(t, f.reports, func(m *clusterv1.SessionRequest) (*clusterv1.LogChunk, bool) {
			c := m.GetLogChunk()
			return c, c.GetReadId() == id && c.GetEnd()
		})
		require.Empty(t, end.GetError())
		var text []byte
		for _, m := range f.reports.all() {
			if c := m.GetLogChunk(); c.GetReadId() == id {
				text = append(text, c.GetChunk()...)
			}
		}
		return string(text)
	}
	whole := read("r1", 0)
	require.Len(t, whole, int(size))
	lines := strings.Split(strings.TrimRight(whole, "\n"), "\n")
	require.Equal(t, strings.Join(lines[len(lines)-7:], "\n")+"\n", read("r2", 7))
	f.s.ReadLogs(&clusterv1.ReadLogs{ReadId: "r3", JobId: "../../etc"})
	end := await(t, f.reports, func(m *clusterv1.SessionRequest) (*clusterv1.LogChunk, bool) {
		return m.GetLogChunk(), m.GetLogChunk().GetReadId() == "r3"
	})
	require.NotEmpty(t, end.GetError())
}

func (f *fixture) plan(t *testing.T, args ...string) *clusterv1.JobPlanned {
	id := strings.Join(args, " ")
	f.s.Plan(&clusterv1.PlanJob{PlanId: id, ArtifactSha256: f.artifact, Args: args, Parallelism: 3, Name: "named", DefaultName: "file"})
	return await(t, f.reports, func(m *clusterv1.SessionRequest) (*clusterv1.JobPlanned, bool) {
		return m.GetJobPlanned(), m.GetJobPlanned().GetPlanId() == id && id != ""
	})
}

func TestPlan(t *testing.T) {
	f := newFixture(t)
	require.Equal(t, "named", f.plan(t, "good").GetResult().GetGraph().GetName())
	require.Equal(t, "a|b c|p=3|secret=|file", f.plan(t, "environment", "a", "b c").GetResult().GetGraph().GetName())
	require.Equal(t, []string{"operator x: no name"}, f.plan(t, "graph-errors").GetResult().GetErrors())
	for behaviour, want := range map[string][]string{
		"not-a-job": {"stream.Main", "usage: something else"},
		"crash":     {"exited with code 2", "no such column"},
		"silent":    {"printed nothing and exited with code 3 without a plan", "stream.Main"},
		"future":    {"7 to 9", ourVersions},
	} {
		answer := f.plan(t, behaviour)
		for _, w := range want {
			require.Contains(t, answer.GetError(), w, behaviour)
		}
		require.Nil(t, answer.GetResult())
	}
	require.Equal(t, "the job binary printed\npanic: no such column\nand exited with code 2 without a plan", f.plan(t, "crash", "again").GetError())
}

func TestPlanHasALimit(t *testing.T) {
	f := newFixture(t, func(c *supervisor.Config) { c.PlanTimeout = 500 * time.Millisecond })
	answer := f.plan(t, "hang")
	require.Contains(t, answer.GetError(), "within 500ms")
	require.Contains(t, answer.GetError(), "waiting for a broker")
}

func TestPlanHasNoNetwork(t *testing.T) {
	probe := exec.Command("true")
	probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET}
	if err := probe.Run(); err != nil {
		t.Skip("network namespaces are not permitted here:", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	f := newFixture(t)
	require.Equal(t, "no network", f.plan(t, "network", l.Addr().String()).GetResult().GetGraph().GetName())
}

// superviseUntilKilled is a process with a supervisor and a worker, for the test that kills it.
func superviseUntilKilled() {
	cfg, hash, err := testConfig(os.Args[2])
	if err != nil {
		panic(err)
	}
	cfg.Report = func(m *clusterv1.SessionRequest) {
		if p := m.GetWorkerEvent().GetEvent().GetPrepared(); p != nil {
			pids, _ := os.ReadDir(filepath.Join(cfg.Dir, "pids"))
			fmt.Println(pids[0].Name())
		}
	}
	s, err := supervisor.New(cfg)
	if err != nil {
		panic(err)
	}
	s.SetCluster("c1")
	(&fixture{s: s, artifact: hash}).start(1, "outlives")
	select {}
}

func TestWorkersDoNotSurviveAKilledTaskManager(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir-killed-")
	require.NoError(t, err)
	defer func() { require.NoError(t, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	require.NoError(t, err)
	host := exec.Command(self, "supervise-until-killed", dir)
	out, err := host.StdoutPipe()
	require.NoError(t, err)
	host.Stderr = os.Stderr
	require.NoError(t, host.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, host.Process.Kill())
	_ = host.Wait()
	worker, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	defer syscall.Kill(worker, syscall.SIGKILL) //nolint:errcheck // in case the test fails
	requireDead(t, worker)
}

func TestLeftoversAreKilledAtStart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data", "pids"), 0o700))
	leftover := exec.Command("sleep", "3600")
	leftover.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, leftover.Start())
	bystander := exec.Command("sleep", "3600")
	bystander.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, bystander.Start())
	died := make(chan error, 1)
	go func() { died <- leftover.Wait() }()

	record := func(pid int, mark string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "data", "pids", strconv.Itoa(pid)), []byte(mark), 0o600))
	}
	record(leftover.Process.Pid, startMark(t, leftover.Process.Pid))
	record(bystander.Process.Pid, "another boot 12345")
	cfg, _, err := testConfig(dir)
	require.NoError(t, err)
	s, err := supervisor.New(cfg)
	require.NoError(t, err)
	require.ErrorContains(t, <-died, "killed")
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", bystander.Process.Pid))
	require.NoError(t, err)
	require.NotContains(t, string(stat), ") Z ", "a process that merely has the number lives on")
	require.NoError(t, bystander.Process.Kill())
	_ = bystander.Wait()
	s.Close(t.Context())
	require.NoError(t, cfg.Segments.Close())
}

// startMark builds the mark of a process the way a pid file holds it.
func startMark(t *testing.T, pid int) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	return strings.TrimSpace(string(boot)) + " " + fields[19]
}

func requireDead(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	}, patience, 5*time.Millisecond)
}
