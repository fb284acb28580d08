package sinks

import (
	"context"
	"errors"
	"fmt"
	"slices"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
)

// rewritableError is the loss of a transaction whose records are kept: the next restore writes them again. It hides the [LostError], which
// would stop the job.
type rewritableError struct {
	loss string
}

// Error implements error.
func (e *rewritableError) Error() string {
	return e.loss + "; its records are kept, and are written again when the job restarts"
}

// rewritable reports whether err is the loss of one transaction as a whole.
func rewritable(err error) (*LostError, bool) {
	var lost *LostError
	return lost, errors.As(err, &lost) && lost.Aborted && !lost.Unknown
}

// RecoverOrRewrite implements operator.Rewriter. A transaction that is lost takes those behind it with it: were they committed, what is
// written again would land behind them. Each of them must be proven aborted before its records are written a second time.
func (d *twoPhase[T, Txn]) RecoverOrRewrite(ctx context.Context, groups []operator.Restored) (*workerv1.Replacement, error) {
	if d.rewriter == nil {
		var cs []*snapshotv1.Committable
		for _, g := range groups {
			for _, tx := range g {
				cs = append(cs, tx.Committable)
			}
		}
		return nil, d.RecoverCommit(ctx, cs)
	}
	failed, end := d.waits.BeginTries(d.target + " to commit restored transactions")
	var again []operator.RestoredTransaction
	for _, g := range groups {
		lost, err := d.recover(ctx, failed, g)
		if err != nil {
			end()
			return nil, err
		}
		again = append(again, lost...)
	}
	end()
	recovered()
	if len(again) == 0 {
		return nil, nil
	}
	defer d.waits.Begin(fmt.Sprintf("%s to accept the output of %d lost transactions again", d.target, len(again)))()
	c, err := d.rewrite(ctx, again)
	if err != nil {
		return nil, fmt.Errorf("sink %s: write lost output again: %w", d.uid, err)
	}
	d.rewritten = c
	faultpoint.Hit(faultpoint.Rewritten)
	return d.replacement(again, c), nil
}

// recover commits the transactions of a group in their order and returns those that have to be written again.
func (d *twoPhase[T, Txn]) recover(ctx context.Context, failed func(error), g operator.Restored) (again []operator.RestoredTransaction, err error) {
	for i, tx := range g {
		lost, err := d.recoverOne(ctx, failed, tx)
		switch {
		case err != nil:
			return nil, err
		case lost == nil:
			continue
		}
		for _, later := range g[i:] {
			if len(later.Committable.GetRecords()) == 0 {
				return nil, lossError([]*LostError{lost}) // the first one, or what would have to be written behind it
			}
		}
		d.commits.logger.Warn("output is lost and is written again from what is kept", "checkpoint", lost.Checkpoint, "transaction", lost.Transaction, "reason", lost)
		again = append(again, tx)
		for _, later := range g[i+1:] {
			switch err := d.revoke(ctx, failed, later); {
			case errors.Is(err, ErrPublished):
				d.commits.logger.Error("a transaction behind a lost one was committed by somebody else; what is written again lands behind it", "checkpoint", later.Committable.GetCheckpoint())
			case err != nil:
				return nil, err
			default:
				again = append(again, later)
			}
		}
		return again, nil
	}
	return nil, nil
}

// recoverOne commits a restored transaction. It returns the loss when that can be made good, and an error for every other one that is
// not accepted.
func (d *twoPhase[T, Txn]) recoverOne(ctx context.Context, failed func(error), tx operator.RestoredTransaction) (*LostError, error) {
	c := []Committable{committableOf(tx.Committable)}
	err := d.recoverCommit(ctx, failed, c)
	if err == nil {
		return nil, nil
	}
	losses := d.located([]*snapshotv1.Committable{tx.Committable}, err)
	if _, ok := rewritable(err); ok && len(tx.Committable.GetRecords()) > 0 {
		return losses[0], nil
	}
	switch {
	case len(losses) > 0 && len(d.drop(c, losses)) == 0:
		return nil, nil
	case len(losses) > 0:
		return nil, lossError(losses)
	}
	return nil, d.commits.describe("commit restored transactions", tx.Committable.GetCheckpoint(), err)
}

func (d *twoPhase[T, Txn]) revoke(ctx context.Context, failed func(error), tx operator.RestoredTransaction) error {
	c := committableOf(tx.Committable)
	err := retry(ctx, d.limit, failed, func(ctx context.Context) error { return d.rewriter.Revoke(ctx, c) })
	if err == nil || errors.Is(err, ErrPublished) {
		return err
	}
	return d.commits.describe("end a transaction behind a lost one", tx.Committable.GetCheckpoint(), err)
}

// rewrite writes kept records into one new transaction and prepares it.
func (d *twoPhase[T, Txn]) rewrite(ctx context.Context, again []operator.RestoredTransaction) (*Committable, error) {
	txn, err := d.sink.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin a transaction: %w", err)
	}
	c, err := d.fill(ctx, txn, again)
	if err != nil {
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		return nil, errors.Join(err, d.sink.Abort(abort, txn))
	}
	return c, nil
}

func (d *twoPhase[T, Txn]) fill(ctx context.Context, txn Txn, again []operator.RestoredTransaction) (*Committable, error) {
	for _, tx := range again {
		err := readKept(ctx, d.store, tx.Committable.GetRecords(), func(record []byte) error { return d.rewriter.Rewrite(ctx, txn, record) })
		if err != nil {
			return nil, fmt.Errorf("records of checkpoint %d: %w", tx.Committable.GetCheckpoint(), err)
		}
	}
	c, err := d.sink.PreCommit(ctx, txn)
	if err != nil {
		return nil, fmt.Errorf("prepare the transaction: %w", err)
	}
	if c.Payload == nil {
		return nil, errors.New("lost transactions had no records")
	}
	return &c, nil
}

// replacement tells what the new transaction stands for.
func (d *twoPhase[T, Txn]) replacement(again []operator.RestoredTransaction, c *Committable) *workerv1.Replacement {
	r := &workerv1.Replacement{Uid: d.uid, Committable: &snapshotv1.Committable{Version: c.Version, Payload: c.Payload}}
	for _, tx := range again {
		r.Committable.Checkpoint = max(r.GetCommittable().GetCheckpoint(), tx.Committable.GetCheckpoint())
		for _, stands := range tx.StandsFor {
			i := slices.IndexFunc(r.GetReplaced(), func(p *workerv1.ReplacedTransactions) bool { return p.GetSubtask() == stands.GetSubtask() })
			if i < 0 {
				i = len(r.GetReplaced())
				r.Replaced = append(r.Replaced, &workerv1.ReplacedTransactions{Subtask: stands.GetSubtask()})
			}
			r.Replaced[i].Checkpoints = append(r.Replaced[i].Checkpoints, stands.GetCheckpoints()...)
		}
	}
	return r
}

// CommitRewritten implements operator.Rewriter. The transaction's identity is kept until the log says that the restore point is settled,
// which is known when phase two begins.
func (d *twoPhase[T, Txn]) CommitRewritten(ctx context.Context) error {
	if d.rewritten == nil {
		return nil
	}
	failed, end := d.waits.BeginTries(d.target + " to commit what was written again")
	defer end()
	err := retry(ctx, d.limit, failed, func(ctx context.Context) error {
		if err := faultpoint.Err(faultpoint.RewriteCommitDue); err != nil {
			return err
		}
		return d.sink.Commit(ctx, *d.rewritten)
	})
	if err != nil {
		return d.commits.describe("commit what was written again", 0, err)
	}
	faultpoint.Hit(faultpoint.RewriteCommitted)
	return nil
}

// freeRewritten lets the identity of the replacement go: the restore point is settled, so nobody commits it any more.
func (d *twoPhase[T, Txn]) freeRewritten() {
	if d.rewritten != nil && d.commits.release != nil {
		d.commits.release(*d.rewritten)
	}
	d.rewritten = nil
}

func committableOf(c *snapshotv1.Committable) Committable {
	return Committable{Version: c.GetVersion(), Payload: c.GetPayload()}
}
