package worker

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/stack"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

const (
	// cancelDeadline bounds how long tasks may take to stop.
	cancelDeadline = 5 * time.Second
	// lingerAfterFailure bounds how long a failed worker waits to be told to stop, so that its report is not lost with it.
	lingerAfterFailure = 5 * time.Second
	// connectDeadline bounds the connection of the channels; the other workers listen already when it begins.
	connectDeadline = 30 * time.Second
	// statisticsEvery is the time between two looks at the figures, which are reported when they have changed.
	statisticsEvery = time.Second
	// loggedFrames is how much of a panic's stack the log shows; the whole of it is reported.
	loggedFrames = 5
)

var (
	// ErrFingerprint is wrapped by the error about a job whose plan is not the one that was submitted.
	ErrFingerprint = errors.New("the job's plan differs from the submitted one")
	// ErrStuck is wrapped by the error about tasks that did not stop in time.
	ErrStuck = errors.New("tasks did not stop in time")
	// ErrCommand is wrapped by the error about a command that does not fit the worker's state.
	ErrCommand = errors.New("unexpected command")
)

// Config is what a worker needs from the process it lives in.
type Config struct {
	// Plan compiles the job. It is called once, when Prepare arrives, with the parallelism override of the submit, 0 for none.
	Plan func(parallelism int) (*operator.Program, error)
	// Store keeps state files and reads the restore point.
	Store statebackend.SegmentStore
	// Dir is a scratch directory. The worker creates it and removes what it put there when it ends.
	Dir string
	// Clock defaults to the system's.
	Clock operator.Clock
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Report takes the worker's events. It is called from any goroutine and must not block for long.
	Report func(*workerv1.Event)
}

// Worker runs the tasks of one attempt of a job. It belongs to exactly one attempt.
type Worker struct {
	cfg    Config
	report reports
	// cancel ends the worker's life: commands in progress and running tasks.
	cancel context.CancelFunc
	wake   chan struct{}
	// released is closed when a failed worker needs to linger no longer.
	released chan struct{}
	done     chan struct{}

	mu       sync.Mutex
	queue    []*workerv1.Command
	failure  error
	canceled bool
	result   error

	restored *restored

	// deployment and figures belong to the worker's goroutine.
	deployment *deployment
	figures    figures
	// finished tells that Finish has been carried out.
	finished bool
	// asked are the looks at transactions under way; they end with asking.
	asked  sync.WaitGroup
	asking context.Context //nolint:containedctx // ends when the tasks are closed
	hush   context.CancelFunc
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// New returns a worker that waits for commands.
func New(cfg Config) *Worker {
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &Worker{
		cfg: cfg, cancel: cancel,
		wake: make(chan struct{}, 1), released: make(chan struct{}), done: make(chan struct{}),
	}
	w.report = newReports(cfg.Report)
	w.restored = &restored{report: w.report}
	w.asking, w.hush = context.WithCancel(ctx)
	go func() {
		defer close(w.done)
		defer cancel()
		w.run(ctx)
	}()
	return w
}

// Do takes the next command. Commands are carried out in order; Do returns at once and results come as events. A Cancel does not
// wait for the commands before it.
func (w *Worker) Do(cmd *workerv1.Command) {
	w.mu.Lock()
	if cmd.GetCancel() != nil {
		w.release()
	} else {
		w.queue = append(w.queue, cmd)
	}
	w.mu.Unlock()
	if cmd.GetCancel() != nil {
		w.cancel()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// release marks the worker as told to stop; w.mu is held.
func (w *Worker) release() {
	if !w.canceled {
		w.canceled = true
		close(w.released)
	}
}

// Wait waits until everything has ended. It returns nil after Finish or Cancel, and the first failure otherwise. The loss of a channel
// to another worker that Cancel follows is no failure of this one: when an attempt ends, some worker is the first to stop.
func (w *Worker) Wait() error {
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.result
}

// Close cancels what still runs, waits for it and releases everything.
func (w *Worker) Close() {
	w.Do(&workerv1.Command{Command: &workerv1.Command_Cancel{Cancel: &workerv1.Cancel{}}})
	<-w.done
}

// fail ends the worker's life with its first failure. vertex is empty when no task is to blame.
func (w *Worker) fail(vertex string, subtask int, err error) {
	w.mu.Lock()
	first := w.failure == nil && !w.canceled
	if first {
		w.failure = err
	}
	w.mu.Unlock()
	if !first {
		return
	}
	if lostPeer(err) {
		w.cfg.Logger.Warn("another worker is gone", "vertex", vertex, "subtask", subtask, "err", err)
	} else {
		attrs := []any{"vertex", vertex, "subtask", subtask, "err", err}
		if trace := task.Stack(err); trace != "" {
			attrs = append(attrs, "at", stack.Top(trace, loggedFrames))
		}
		w.cfg.Logger.Error("attempt failed", attrs...)
	}
	w.report.failed(vertex, subtask, err)
	w.cancel()
}

func (w *Worker) run(ctx context.Context) {
	ticker := time.NewTicker(statisticsEvery)
	defer ticker.Stop()
	for !w.finished && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-w.wake:
			for _, cmd := range w.take() {
				if w.finished || ctx.Err() != nil {
					break
				}
				w.figures.changed() // a new leader knows none, and speaks first
				if err := w.handle(ctx, cmd); err != nil {
					w.fail("", 0, err)
				}
			}
		case <-ticker.C:
			if w.deployment != nil && w.deployment.started {
				tasks := w.deployment.statistics()
				w.report.look(w.figures.look(tasks))
				w.deployment.warnOfAge(tasks, w.cfg.Logger)
			}
		}
	}
	var stuck error
	if !w.finished {
		stuck = w.stop(false)
	}
	w.mu.Lock()
	failed := w.failure != nil
	w.mu.Unlock()
	if failed {
		linger := time.NewTimer(lingerAfterFailure)
		defer linger.Stop()
		select {
		case <-w.released:
		case <-linger.C:
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.result = w.failure
	if w.canceled && lostPeer(w.failure) {
		w.result = nil
	}
	w.result = errors.Join(w.result, stuck)
}

// lostPeer reports whether err is the loss of a channel to another worker.
func lostPeer(err error) bool {
	var peer *exchange.PeerError
	return errors.As(err, &peer)
}

func (w *Worker) take() []*workerv1.Command {
	w.mu.Lock()
	defer w.mu.Unlock()
	cmds := w.queue
	w.queue = nil
	return cmds
}

// endAsking ends the looks at transactions under way. One that does not heed its context is left behind.
func (w *Worker) endAsking() {
	w.hush()
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.asked.Wait()
	}()
	patience := time.NewTimer(cancelDeadline)
	defer patience.Stop()
	select {
	case <-over:
	case <-patience.C:
	}
}

// stop ends all tasks and releases what the deployment holds.
func (w *Worker) stop(clean bool) error {
	d := w.deployment
	if d == nil {
		return nil
	}
	w.endAsking()
	err := d.stop(clean, cancelDeadline)
	if !errors.Is(err, ErrStuck) {
		if err := os.RemoveAll(d.dir); err != nil {
			w.cfg.Logger.Warn("scratch directory not removed", "err", err)
		}
	}
	return err
}
