package worker

import (
	"context"
	"fmt"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// handle carries out one command. An error fails the worker.
func (w *Worker) handle(ctx context.Context, cmd *workerv1.Command) error {
	d := w.deployment
	switch c := cmd.GetCommand().(type) {
	case *workerv1.Command_Prepare:
		if d != nil {
			return w.unexpected("prepare", "it is prepared already")
		}
		return w.prepare(ctx, c.Prepare)
	case *workerv1.Command_CommitRewritten:
		if d == nil {
			return w.unexpected("commit what was written again", "it is not prepared")
		}
		w.commitRewritten(ctx)
		return nil
	case *workerv1.Command_Start:
		if d == nil {
			return w.unexpected("start", "it is not prepared")
		}
		return w.start(ctx, c.Start)
	case *workerv1.Command_Finish:
		w.finish()
		return nil
	case *workerv1.Command_Transactions:
		w.transactions(c.Transactions)
		return nil
	}
	if d == nil || !d.started || d.settleOnly {
		// Left over from a time before, or meant for tasks that run.
		w.cfg.Logger.Warn("command without running tasks ignored", "command", fmt.Sprintf("%T", cmd.GetCommand()))
		return nil
	}
	switch c := cmd.GetCommand().(type) {
	case *workerv1.Command_TriggerCheckpoint:
		t := c.TriggerCheckpoint
		d.each(func(r *runner) {
			r.task.Trigger(barrier.Barrier{Checkpoint: t.GetCheckpoint(), Full: t.GetFull(), Stop: t.GetStop()})
		})
	case *workerv1.Command_CompleteCheckpoint:
		n := c.CompleteCheckpoint.GetCheckpoint()
		faultpoint.Hit(faultpoint.NoticeReceived)
		w.report.commitAsked(n, len(d.runners))
		d.each(func(r *runner) { r.task.Completed(n) })
	case *workerv1.Command_AbortCheckpoint:
		d.each(func(r *runner) { r.task.Abort(c.AbortCheckpoint.GetCheckpoint()) })
	case *workerv1.Command_ResumeSources:
		d.each(func(r *runner) { r.task.Resume() })
	default:
		return w.unexpected(fmt.Sprintf("%T", c), "this version does not know it")
	}
	return nil
}

func (w *Worker) unexpected(command, why string) error {
	return operator.Fatal(fmt.Errorf("%w: %s: %s", ErrCommand, command, why))
}

// finish closes everything cleanly. Whatever goes wrong leaves a transaction open that a settling attempt has to fence, so that it is
// a failure.
func (w *Worker) finish() {
	err := w.stop(true)
	w.finished = true
	if err != nil {
		w.fail("", 0, fmt.Errorf("close the tasks: %w", err))
		return
	}
	w.mu.Lock()
	failed := w.failure != nil || w.canceled
	w.mu.Unlock()
	if failed {
		return
	}
	if d := w.deployment; d != nil && !d.settleOnly {
		w.report.statistics(d.statistics())
	}
	w.report.closed()
}
