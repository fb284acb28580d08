package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// transactions carries out a command about transactions beside everything else. Whatever comes of it ends no task.
func (w *Worker) transactions(c *workerv1.Transactions) {
	d := w.deployment
	done := &workerv1.TransactionsDone{Request: c.GetRequest(), Outcome: workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE}
	if d == nil || !d.started && !d.prepare.GetInspectOnly() {
		done.Error = "the tasks of this worker have not started"
		w.report.transactionsDone(done)
		return
	}
	w.asked.Go(func() {
		switch a := c.GetAction().(type) {
		case *workerv1.Transactions_Inspect:
			d.inspect(w.asking, c, done)
		case *workerv1.Transactions_Resolve:
			d.resolve(w.asking, c.GetAttempts(), a.Resolve, done)
		case *workerv1.Transactions_Fence:
			d.fenceAgain(w.asking, c, done)
		default:
			done.Error = "this version of the job's binary does not know what was asked"
		}
		w.report.transactionsDone(done)
	})
}

// askAtOnce is how many tasks are asked at the same time.
const askAtOnce = 8

// ask calls fn for all tasks, some at once.
func (d *deployment) ask(fn func(*runner)) {
	var wait sync.WaitGroup
	slots := make(chan struct{}, askAtOnce)
	for _, r := range d.runners {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			fn(r)
		})
	}
	wait.Wait()
}

func (d *deployment) inspect(ctx context.Context, c *workerv1.Transactions, done *workerv1.TransactionsDone) {
	var mu sync.Mutex
	var errs []error
	d.ask(func(r *runner) {
		view, err := r.task.InspectTransactions(ctx, func(uid string) operator.Scope { return scope(c.GetAttempts(), uid, r.task) })
		mu.Lock()
		defer mu.Unlock()
		done.Transactions = append(done.Transactions, view.Transactions...)
		done.Held = append(done.Held, view.Held...)
		errs = append(errs, err)
	})
	slices.SortFunc(done.Transactions, func(a, b *jobv1.Transaction) int { return cmp.Compare(a.GetId(), b.GetId()) })
	if err := errors.Join(errs...); err != nil {
		done.Error = err.Error()
	}
}

func (d *deployment) fenceAgain(ctx context.Context, c *workerv1.Transactions, done *workerv1.TransactionsDone) {
	var mu sync.Mutex
	var errs []error
	d.ask(func(r *runner) {
		err := r.task.FenceAgain(ctx, func(uid string) operator.Scope { return scope(c.GetAttempts(), uid, r.task) })
		mu.Lock()
		errs = append(errs, err)
		mu.Unlock()
	})
	if err := errors.Join(errs...); err != nil {
		done.Error = err.Error()
	}
}

// resolve asks all tasks: only the one whose transaction it is does anything. That another one's system cannot be asked matters when there
// is none.
func (d *deployment) resolve(ctx context.Context, attempts []*workerv1.FencedAttempt, c *workerv1.ResolveTransaction, done *workerv1.TransactionsDone) {
	var mu sync.Mutex
	var notAsked []error
	d.ask(func(r *runner) {
		already, err := r.task.ResolveTransaction(ctx, operator.Resolution{ID: c.GetTransaction(), Commit: c.GetCommit(), Force: c.GetForce()},
			func(uid string) operator.Scope { return scope(attempts, uid, r.task) })
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, sinks.ErrNotFound):
		case errors.Is(err, sinks.ErrNotAsked):
			notAsked = append(notAsked, err)
		default:
			done.Outcome = outcome(already, err)
			if err != nil {
				done.Error = err.Error()
			}
		}
	})
	if err := errors.Join(notAsked...); err != nil && done.GetOutcome() == workerv1.ResolveOutcome_RESOLVE_OUTCOME_NOT_MINE {
		done.Error = err.Error()
	}
}

func outcome(already bool, err error) workerv1.ResolveOutcome {
	switch {
	case err == nil && already:
		return workerv1.ResolveOutcome_RESOLVE_OUTCOME_ALREADY
	case err == nil:
		return workerv1.ResolveOutcome_RESOLVE_OUTCOME_DONE
	case errors.Is(err, operator.ErrSafeguard):
		return workerv1.ResolveOutcome_RESOLVE_OUTCOME_REFUSED
	case errors.Is(err, sinks.ErrLost), errors.Is(err, sinks.ErrCommitted):
		return workerv1.ResolveOutcome_RESOLVE_OUTCOME_CONTRARY
	}
	return workerv1.ResolveOutcome_RESOLVE_OUTCOME_UNKNOWN
}

// lost returns the restored transactions that were dropped.
func (d *deployment) lost() (lost []*jobv1.LostOutput) {
	for _, r := range d.runners {
		lost = append(lost, r.task.Lost()...)
	}
	return lost
}

// warnOfAge warns once of each task whose oldest transaction is past half of its timeout, and again when it has been younger since.
func (d *deployment) warnOfAge(figures []*jobv1.TaskStatistics, logger *slog.Logger) {
	if d.old == nil {
		d.old = map[taskKey]bool{}
	}
	for _, f := range figures {
		k := taskKey{f.GetVertex(), int(f.GetSubtask())}
		old := f.GetTransactionTimeoutMs() > 0 && 2*f.GetOldestTransactionMs() > f.GetTransactionTimeoutMs()
		if old && !d.old[k] {
			logger.Warn("a transaction is past half of its timeout; the system ends it when that has passed, so a checkpoint should complete soon",
				"task", k.vertex, "subtask", k.subtask, "age", time.Duration(f.GetOldestTransactionMs())*time.Millisecond,
				"timeout", time.Duration(f.GetTransactionTimeoutMs())*time.Millisecond)
		}
		d.old[k] = old
	}
}
