package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/restart"
	"github.com/weir-stream/weir/operator"
)

// Config is a local run.
type Config struct {
	// Plan compiles the job; it is called for every attempt, with 0.
	Plan func(parallelism int) (*operator.Program, error)
	// Dir is the state directory; it is created when absent.
	Dir string
	// AllowDroppedState lets the run resume although the job does not take all of the checkpoint's state, which is dropped then.
	AllowDroppedState bool
	// Logger defaults to one that discards.
	Logger *slog.Logger
	// Clock defaults to the system's.
	Clock operator.Clock
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// Error is the failure that ended a job.
type Error struct {
	// Task is the failed task, empty when it was none.
	Task string
	// Message is the failure's text, Stack that of a panic.
	Message, Stack string
	// Reason says why there was no restart.
	Reason string
	// Unsettled says which transactions may be left open, and why; empty when none is.
	Unsettled string
}

// Error implements error.
func (e *Error) Error() string {
	text := "job failed"
	if e.Task != "" {
		text += " in " + e.Task
	}
	text += ": " + e.Message
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.Unsettled != "" {
		text += "; transactions may be left open: " + e.Unsettled
	}
	if e.Stack != "" {
		text += "\n" + e.Stack
	}
	return text
}

// ErrNoLastCheckpoint is wrapped by the error of a run that was stopped without a last checkpoint. Nothing is lost: the next run
// resumes from the one before.
var ErrNoLastCheckpoint = errors.New("stopped without a last checkpoint")

// Run runs the job in this process until its input ends, ctx ends or it fails. When ctx ends a last checkpoint is taken and
// committed, and the next run resumes from it; a run after the end of the input begins anew. A failed job is restarted under its
// policy.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Clock == nil {
		cfg.Clock = systemClock{}
	}
	program, err := cfg.Plan(0)
	if err != nil {
		return fmt.Errorf("plan the job: %w", err)
	}
	d, err := openDir(cfg.Dir)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.claim(program.Graph); err != nil {
		return err
	}
	if err := d.clean(); err != nil {
		cfg.Logger.Warn("unneeded files not deleted", "err", err)
	}
	r := &runner{cfg: cfg, dir: d}
	return r.run(ctx)
}

// runner runs one attempt after the other.
type runner struct {
	cfg     Config
	dir     *stateDir
	history []restart.Former
}

func (r *runner) run(ctx context.Context) error {
	if j := r.dir.job(); j.GetState() == jobv1.JobState_JOB_STATE_SETTLING && j.GetTarget() == jobv1.JobState_JOB_STATE_FINISHED {
		// A former process died between the completion of the last checkpoint and the end of its commit.
		r.cfg.Logger.Info("finishing what the last run left", "checkpoint", r.dir.last().GetId())
		if err := r.settle(); err != nil {
			return fmt.Errorf("commit the last run's output: %w", err)
		}
		return r.record(jobv1.JobState_JOB_STATE_FINISHED)
	}
	if last := r.dir.last(); last != nil {
		r.cfg.Logger.Info("resuming", "dir", r.dir.path, "checkpoint", last.GetId())
	}
	for {
		end := r.attempt(ctx)
		switch end.how {
		case finished:
			return r.record(jobv1.JobState_JOB_STATE_FINISHED)
		case stopped:
			return r.record(jobv1.JobState_JOB_STATE_STOPPED)
		case canceled:
			return r.cancel(end)
		}
		delay, err := r.failed(end)
		if err != nil {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return r.cancel(ending{how: canceled, message: "the job was restarting after a failure: " + end.message})
		}
	}
}

// record notes how the job ended. The state of a finished job is of no use to anybody.
func (r *runner) record(state jobv1.JobState) error {
	var former []*raftv1.CompletedCheckpoint
	err := r.dir.update(func(j *raftv1.JobRecord) {
		j.State, j.Target = state, state
		fenced(j, j.GetAttempt()+1)
		if state == jobv1.JobState_JOB_STATE_FINISHED {
			former = slices.Clone(j.GetCheckpoints())
			j.Checkpoints, j.Prepared = nil, false
		} else if last := len(j.GetCheckpoints()); last > 0 {
			settle(j, j.GetCheckpoints()[last-1].GetId())
		}
	})
	if err != nil {
		return fmt.Errorf("record the job's end: %w", err)
	}
	if len(former) > 0 {
		if err := r.dir.clean(); err != nil {
			r.cfg.Logger.Warn("files of the finished job not deleted", "err", err)
		}
	}
	r.cfg.Logger.Info("job ended", "state", state.String())
	return nil
}

// cancel settles a job that was stopped without a last checkpoint.
func (r *runner) cancel(end ending) error {
	if end.stuck != nil {
		return fmt.Errorf("%w: %s; transactions may be left open until the next run: %w", ErrNoLastCheckpoint, end.message, end.stuck)
	}
	settleErr := r.settle()
	switch {
	case settleErr != nil:
		return fmt.Errorf("%w: %s; transactions may be left open until the next run: %w", ErrNoLastCheckpoint, end.message, settleErr)
	case end.idle:
		// Nothing has run, so nothing is missing.
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoLastCheckpoint, end.message)
}

// failed decides what a failure leads to: a delay before the next attempt, or the end.
func (r *runner) failed(end ending) (time.Duration, error) {
	now := r.cfg.Clock.Now()
	d := restart.Decide(end.policy, r.history, end.class, false, now, rand.Float64())
	if restart.NeverWorked(end.class) && !r.dir.prepared() {
		// Nobody has seen the job work: an address, a topic or a setting is wrong, and whoever started it is waiting for the answer.
		d = restart.Decision{Action: restart.Fail, Reason: "the job has never been prepared, so it is not tried again; mend the cause and start it anew"}
	}
	if end.stuck != nil {
		d = restart.Decision{Action: restart.Fail, Reason: "the former attempt is still running: " + end.stuck.Error()}
	}
	if d.Action == restart.Restart {
		r.history = restart.Remember(end.policy, r.history, restart.Former{At: now, Counted: d.Counted})
		r.cfg.Logger.Warn("job restarts", "delay", d.Delay, "task", end.task, "cause", end.message)
		return d.Delay, nil
	}
	err := &Error{Task: end.task, Message: end.message, Stack: end.stack, Reason: d.Reason}
	if end.stuck == nil {
		if settleErr := r.settle(); settleErr != nil {
			err.Unsettled = settleErr.Error()
			if end.idle && end.class == workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS {
				err.Unsettled = "those of the checkpoint that cannot be read"
			}
		}
	}
	if updateErr := r.dir.update(func(j *raftv1.JobRecord) { j.State = jobv1.JobState_JOB_STATE_FAILED }); updateErr != nil {
		return 0, errors.Join(err, updateErr)
	}
	return 0, err
}

// restorePoint returns what the next attempt starts from, nil for nothing.
func (r *runner) restorePoint() *workerv1.RestorePoint {
	last := r.dir.last()
	if last == nil {
		return nil
	}
	return &workerv1.RestorePoint{
		Metadata: last.GetMetadata(), Checkpoint: last.GetId(), Settled: last.GetSettled(), AllowDroppedState: r.cfg.AllowDroppedState,
		Replacements: r.dir.replacements(),
	}
}
