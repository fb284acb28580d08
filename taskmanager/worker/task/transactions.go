package task

import (
	"context"
	"errors"
	"fmt"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// Lost returns the restored transactions that Open has dropped.
func (t *Task) Lost() (lost []*jobv1.LostOutput) {
	for _, c := range t.committers {
		if r, ok := c.Committer.(operator.LossReporter); ok {
			lost = append(lost, r.Lost()...)
		}
	}
	return lost
}

// InspectTransactions looks at the transactions of the task's sinks; scope returns the share of one in former attempts. It may be called
// from any goroutine after Open and before Close. The answer holds what could be found out, whatever the error.
func (t *Task) InspectTransactions(ctx context.Context, scope func(uid string) operator.Scope) (*operator.TransactionView, error) {
	all := &operator.TransactionView{}
	var errs []error
	for _, c := range t.committers {
		i, ok := c.Committer.(operator.TransactionInspector)
		if !ok {
			continue
		}
		errs = append(errs, protect(func() error {
			view, err := i.InspectTransactions(ctx, t.restored(c.link), scope(t.links[c.link].uid))
			if view != nil {
				all.Transactions = append(all.Transactions, view.Transactions...)
				all.Held = append(all.Held, view.Held...)
			}
			return err
		}))
	}
	return all, errors.Join(errs...)
}

// restored are the transactions of the restore point that are to be looked at: those of a task that runs are settled.
func (t *Task) restored(link int) []*snapshotv1.Committable {
	if !t.cfg.Inspect {
		return nil
	}
	return t.links[link].Committables
}

// ResolveTransaction ends a transaction of one of the task's sinks by hand. The error wraps sinks.ErrNotFound when it is none of theirs,
// and sinks.ErrNotAsked when it may be that of one that cannot be asked.
func (t *Task) ResolveTransaction(ctx context.Context, r operator.Resolution, scope func(uid string) operator.Scope) (already bool, err error) {
	var notAsked []error
	for _, c := range t.committers {
		i, ok := c.Committer.(operator.TransactionInspector)
		if !ok {
			continue
		}
		r.Restored, r.Scope = t.restored(c.link), scope(t.links[c.link].uid)
		err := protect(func() (err error) {
			already, err = i.ResolveTransaction(ctx, r)
			return err
		})
		switch {
		case errors.Is(err, sinks.ErrNotFound):
		case errors.Is(err, sinks.ErrNotAsked):
			notAsked = append(notAsked, err)
		default:
			return already, err
		}
	}
	if err := errors.Join(notAsked...); err != nil {
		return false, err
	}
	return false, fmt.Errorf("%w: %s", sinks.ErrNotFound, r.ID)
}

// FenceAgain ends what former attempts have opened since Fence.
func (t *Task) FenceAgain(ctx context.Context, scope func(uid string) operator.Scope) error {
	var errs []error
	for _, c := range t.committers {
		if _, ok := c.Committer.(operator.TransactionInspector); !ok {
			continue // it may not be called beside its task
		}
		sc := scope(t.links[c.link].uid)
		sc.Again = true
		errs = append(errs, protect(func() error { return c.RecoverAbort(ctx, sc) }))
	}
	return errors.Join(errs...)
}
