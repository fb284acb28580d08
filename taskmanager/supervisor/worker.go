package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// worker is one worker process, from the order to start it until it is reaped.
type worker struct {
	s      *Supervisor
	key    attemptKey
	start  *clusterv1.StartWorker
	slots  int
	token  string
	socket string
	dir    string
	logger *slog.Logger
	scope  *segmentstore.Scope

	started   context.Context //nolint:containedctx // it ends when the worker shall stop before its process runs
	interrupt context.CancelFunc
	connected chan struct{} // closed by the first valid Hello
	broken    chan struct{} // closed when the control stream ended
	exit      exit          // read after run

	mu       sync.Mutex
	queue    []*workerv1.Command
	wake     chan struct{} // capacity 1: one pending wake-up is enough, the sender takes the whole queue
	stopping bool          // the exit was asked for by Stop or Close
	leaving  bool          // the worker was told to finish or cancel
	progress progress
	failed   bool // a failure was reported
	hello    bool
	lost     bool // broken is closed
	silent   bool // it sent no heartbeats, which is why
	process  *process
	killed   bool
	deadline *time.Timer
}

func newWorker(s *Supervisor, key attemptKey, m *clusterv1.StartWorker, socket string) *worker {
	p := m.GetPrepare()
	p.BindHost, p.AdvertiseHost = s.cfg.BindHost, s.cfg.AdvertiseHost
	p.Encrypt, p.FirstPort, p.LastPort = s.cfg.Encrypt, uint32(s.cfg.FirstPort), uint32(s.cfg.LastPort)
	p.StateMemory = uint64(s.cfg.StateMemory) / uint64(max(1, s.cfg.Slots))
	subtasks := map[uint32]struct{}{}
	for _, t := range p.GetTasks() {
		subtasks[t.GetSubtask()] = struct{}{}
	}
	w := &worker{
		s: s, key: key, start: m, slots: len(subtasks), token: rand.Text(), socket: socket,
		dir:    filepath.Join(s.cfg.Dir, "work", fmt.Sprintf("%s-%d", key.job, key.attempt)),
		logger: s.cfg.Logger.With("job", key.job, "attempt", key.attempt),
		scope:  s.cfg.Segments.Scope(), wake: make(chan struct{}, 1),
		connected: make(chan struct{}), broken: make(chan struct{}),
	}
	w.started, w.interrupt = context.WithCancel(context.Background())
	w.command(&workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: p}})
	return w
}

// run runs the worker to its end and fills in exit.
func (w *worker) run() {
	defer w.interrupt()
	defer w.scope.Close()
	out, err := w.s.openOutput(w.key)
	if err != nil {
		w.logger.Warn("output of the worker is not kept", "err", err)
	}
	defer out.close()
	err = w.supervise(out)
	w.mu.Lock()
	if w.deadline != nil {
		w.deadline.Stop()
	}
	stopping := w.stopping
	w.mu.Unlock()
	w.exit.tail = out.tailText()
	if err != nil && !stopping {
		if crash := out.crashLine(); crash != "" {
			err = fmt.Errorf("%w: %s", err, crash)
		}
		w.fail(err, w.exit.tail)
	}
}

// supervise starts the process and watches it until it is reaped. The error is why the process could not run or had to be killed, or
// that it died unasked.
func (w *worker) supervise(out *output) error {
	w.exit.code = -1
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stopping {
			w.exit.expected = true
		}
	}()
	binary, release, err := w.s.artifacts.acquire(w.started, w.s.cfg.Bucket, w.start.GetPrepare().GetClusterId(), w.start.GetArtifactSha256())
	if err != nil {
		return err
	}
	defer release()
	dir, err := filepath.Abs(w.dir)
	if err != nil {
		return err
	}
	w.dir = dir
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return fmt.Errorf("making the worker's scratch directory: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(w.dir); err != nil {
			w.logger.Warn("scratch files not removed", "dir", w.dir, "err", err)
		}
	}()
	control, err := w.serve()
	if err != nil {
		return fmt.Errorf("opening the worker's control socket: %w", err)
	}
	defer control.close()

	cmd := jobCommand(binary, w.start.GetArtifactSha256(), w.start.GetArgs(), w.dir, out,
		append(operatorParallelism(w.start.GetPrepare().GetOperatorParallelism()),
			"WEIR_MODE=worker", "WEIR_CONTROL_SOCKET="+w.socket, "WEIR_TOKEN="+w.token, "WEIR_WORK_DIR="+w.dir)...)
	p, err := w.launch(cmd)
	if err != nil || p == nil {
		return err
	}
	w.logger.Info("worker started", "pid", p.pid())
	faultpoint.Hit(faultpoint.WorkerLaunched)
	why := w.watch(p)
	<-p.done
	w.drain()
	control.close() // no event comes after the exit
	w.exit.code, w.exit.signal = p.code, p.signal
	w.mu.Lock()
	w.exit.expected = w.stopping || w.leaving && p.code == 0 && p.signal == ""
	w.mu.Unlock()
	w.logger.Info("worker exited", "pid", p.pid(), "code", p.code, "signal", p.signal, "expected", w.exit.expected)
	if w.exit.expected && (p.code != 0 || p.signal != "") {
		w.logger.Warn("worker did not stop cleanly", "code", p.code, "signal", p.signal,
			"given_up", "what it had not closed, such as open transactions; the job's next attempt ends those")
	}
	switch {
	case why != nil:
		return why
	case w.exit.expected:
		return nil
	case p.signal == "SIGKILL":
		return errors.New("the worker process was killed; when the kernel's log speaks of memory, the machine ran out of it")
	case p.signal != "":
		return fmt.Errorf("the worker process died of %s", p.signal)
	default:
		return fmt.Errorf("the worker process exited with code %d", p.code)
	}
}

// launch starts the process unless the worker was stopped meanwhile, in which case both results are nil.
func (w *worker) launch(cmd *exec.Cmd) (*process, error) {
	w.mu.Lock()
	if w.stopping {
		w.mu.Unlock()
		return nil, nil
	}
	w.mu.Unlock()
	p, err := w.s.spawner.start(cmd, filepath.Join(w.s.cfg.Dir, "pids"))
	if err != nil {
		return nil, startError(err, cmd.Path)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process = p
	if w.killed {
		p.kill()
	}
	return p, nil
}

// watch returns when the process is dead or was killed for the returned reason.
func (w *worker) watch(p *process) error {
	connect := time.NewTimer(w.s.cfg.ConnectTimeout)
	defer connect.Stop()
	select {
	case <-p.done:
		return nil
	case <-w.connected:
	case <-connect.C:
		p.kill()
		return fmt.Errorf("the worker process did not connect within %v of its start and was killed", w.s.cfg.ConnectTimeout)
	}
	select {
	case <-p.done:
		return nil
	case <-w.broken:
	}
	grace := time.NewTimer(w.farewell())
	defer grace.Stop()
	select {
	case <-p.done:
		return nil
	case <-grace.C:
		p.kill()
		return fmt.Errorf("the worker process stopped answering on its control connection (limit %v) and was killed", w.s.cfg.StallTimeout)
	}
}

// suddenEnd is how long a worker may take to exit once its connection broke without a reason to end: one that lives exits at once.
const suddenEnd = 500 * time.Millisecond

// farewell returns how long a worker without a connection may take to exit.
func (w *worker) farewell() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.silent {
		return 0
	}
	if w.stopping || w.leaving || w.failed {
		return w.s.cfg.CancelDeadline
	}
	return min(suddenEnd, w.s.cfg.CancelDeadline)
}

// drainLimit bounds the wait for the last events of a dead process, which are in the socket's buffer already.
const drainLimit = time.Second

// drain waits until the control stream of a dead worker has been read to its end.
func (w *worker) drain() {
	select {
	case <-w.connected:
	default:
		return
	}
	limit := time.NewTimer(drainLimit)
	defer limit.Stop()
	select {
	case <-w.broken:
	case <-limit.C:
	}
}

// stop asks the worker to cancel and kills it after the deadline; a deadline of 0 kills at once.
func (w *worker) stop(deadline time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := !w.stopping
	w.stopping = true
	w.interrupt()
	if deadline <= 0 {
		w.killed = true
		if w.process != nil {
			w.process.kill()
		}
		return
	}
	if first {
		w.enqueue(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
		w.deadline = time.AfterFunc(deadline, func() { w.stop(0) })
	}
}

// command queues c for the worker.
func (w *worker) command(c *workerv1.Command) {
	if c.GetCompleteCheckpoint() != nil {
		faultpoint.Hit(faultpoint.NoticeAtTaskManager)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.GetFinish() != nil || c.GetCancel() != nil {
		w.leaving = true
	}
	w.progress.command(c)
	w.enqueue(c)
}

func (w *worker) enqueue(c *workerv1.Command) {
	w.queue = append(w.queue, c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *worker) take() []*workerv1.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queue
	w.queue = nil
	return q
}

// fail reports a failure of the whole worker unless it has reported one itself.
func (w *worker) fail(err error, tail string) {
	w.mu.Lock()
	reported := w.failed
	w.failed = true
	w.mu.Unlock()
	if reported {
		return
	}
	class := workerv1.FailureClass_FAILURE_CLASS_RESTART
	var c *classifiedError
	if errors.As(err, &c) {
		class = c.class
	}
	w.s.reportEvent(w.key, &workerv1.Event{Event: &workerv1.Event_TaskFailed{TaskFailed: &workerv1.TaskFailed{
		Class: class, Message: err.Error(), OutputTail: tail,
	}}})
}

// classifiedError is an error whose class is not the default one.
type classifiedError struct {
	class workerv1.FailureClass
	err   error
}

func (e *classifiedError) Error() string { return e.err.Error() }
func (e *classifiedError) Unwrap() error { return e.err }

func fatal(err error) error {
	return &classifiedError{workerv1.FailureClass_FAILURE_CLASS_FATAL, err}
}

func storage(err error) error {
	return &classifiedError{workerv1.FailureClass_FAILURE_CLASS_STORAGE, err}
}

// ownVariables are settings of Weir that a job binary must not inherit: a node's, and those that a supervisor sets itself.
var ownVariables = []string{
	"WEIR_TM_", "WEIR_JM_", "WEIR_JOBMANAGER=", "WEIR_API_TOKEN=", "WEIR_TOKEN_FILE=", "WEIR_TLS_", "WEIR_MODE=", "WEIR_CONTROL_SOCKET=", "WEIR_TOKEN=", "WEIR_WORK_DIR=",
	"WEIR_PLAN_OUTPUT=", "WEIR_PARALLELISM=", "WEIR_OPERATOR_PARALLELISM=", "WEIR_JOB_NAME=", "WEIR_JOB_DEFAULT_NAME=", "WEIR_STATE_DIR=",
}

// jobCommand returns a command that runs a job binary in dir with our environment. Its own name is short, since a job without a name
// is called after it where the client has given none.
func jobCommand(binary, hash string, args []string, dir string, out *output, env ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Args[0] = "job-" + hash[:8]
	cmd.Dir = dir
	cmd.Stdout, cmd.Stderr = out, out
	for _, e := range os.Environ() {
		own := func(prefix string) bool { return strings.HasPrefix(e, prefix) }
		if !slices.ContainsFunc(ownVariables, own) {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

// startError explains why a binary could not be executed.
func startError(err error, path string) error {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return fatal(foreignBinary(path))
	case errors.Is(err, syscall.ENOENT):
		if _, statErr := os.Stat(path); statErr == nil {
			return fatal(fmt.Errorf("the binary needs a dynamic loader that this machine does not have: build it with CGO_ENABLED=0, or on the same distribution: %w", err))
		}
	}
	return fmt.Errorf("starting the job binary: %w", err)
}
