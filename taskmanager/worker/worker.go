package worker

import (
	"log/slog"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
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
type Worker struct{ cfg Config }

// New returns a worker that waits for commands.
func New(cfg Config) *Worker { return &Worker{cfg: cfg} }

// Do takes the next command. Commands are carried out in order; Do returns at once and results come as events.
func (w *Worker) Do(cmd *workerv1.Command) { panic("not yet") }

// Wait waits until everything has ended. It returns nil after Finish or Cancel, and the first failure otherwise.
func (w *Worker) Wait() error { panic("not yet") }

// Close cancels what still runs, waits for it and releases everything.
func (w *Worker) Close() { panic("not yet") }
