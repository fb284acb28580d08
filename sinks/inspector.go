package sinks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
)

var errNotShown = errors.New("this kind of sink does not show its transactions")

// known is a prepared transaction that the driver knows.
type known struct {
	checkpoint uint64
	listed     bool // by a completed checkpoint
	c          Committable
}

// pending lists the transactions of the restore point and of the ledger.
func (d *twoPhase[T, Txn]) pending(restored []*snapshotv1.Committable) []known {
	var out []known
	for _, c := range restored {
		out = append(out, known{c.GetCheckpoint(), true, Committable{Version: c.GetVersion(), Payload: c.GetPayload()}})
	}
	d.commits.mu.Lock()
	defer d.commits.mu.Unlock()
	for _, e := range d.commits.ledger.Entries() {
		out = append(out, known{e.Checkpoint, d.commits.ledger.Listed(e), e.Committable})
	}
	return out
}

func (d *twoPhase[T, Txn]) inspect(ctx context.Context, pending []known, scope operator.Scope) (Inspection, error) {
	if d.inspector == nil {
		return Inspection{}, errNotShown
	}
	cs := make([]Committable, len(pending))
	for i, k := range pending {
		cs[i] = k.c
	}
	in, err := d.inspector.Inspect(ctx, cs, scope)
	if err == nil && len(in.Pending) != len(cs) {
		err = fmt.Errorf("it described %d of %d transactions", len(in.Pending), len(cs))
	}
	return in, err
}

// InspectTransactions implements operator.TransactionInspector.
func (d *twoPhase[T, Txn]) InspectTransactions(ctx context.Context, restored []*snapshotv1.Committable, scope operator.Scope) (*operator.TransactionView, error) {
	pending := d.pending(restored)
	in, err := d.inspect(ctx, pending, scope)
	view := &operator.TransactionView{}
	if err != nil && len(in.Pending) != len(pending) {
		return view, fmt.Errorf("sink %s: %w", d.uid, err)
	}
	for i, t := range in.Pending {
		view.Transactions = append(view.Transactions, d.describe(t, pending[i]))
	}
	for _, t := range in.Others {
		view.Transactions = append(view.Transactions, d.describe(t, known{}))
	}
	for _, h := range in.Held {
		view.Held = append(view.Held, &jobv1.HeldOutput{
			Place: h.Place, Visible: h.Visible, End: h.End, Transaction: h.Transaction, Owner: h.Owner, Own: h.Own, Current: h.Current,
			AgeMs: millis(h.Age), LeftMs: millis(h.Left), Ends: h.Ends,
		})
	}
	if err != nil {
		err = fmt.Errorf("sink %s: %w", d.uid, err)
	}
	return view, err
}

func (d *twoPhase[T, Txn]) describe(t Transaction, k known) *jobv1.Transaction {
	return &jobv1.Transaction{
		Id: t.ID, Sink: d.uid, Subtask: uint32(t.Subtask), Attempt: t.Attempt, State: jobv1.TransactionState(t.State), Checkpoint: k.checkpoint,
		Listed: k.listed, Current: d.current(t), Parts: parts(t.Parts), AgeMs: millis(t.Age), LeftMs: millis(t.Left),
	}
}

// current reports whether the running attempt is at work with a transaction.
func (d *twoPhase[T, Txn]) current(t Transaction) bool {
	return t.Attempt == d.attempt && !d.settleOnly
}

func parts(ps []Part) (out []*jobv1.OutputPart) {
	for _, p := range ps {
		out = append(out, &jobv1.OutputPart{Place: p.Place, Records: max(p.Records, -1), Detail: p.Detail})
	}
	return out
}

func millis(d time.Duration) int64 {
	if d < 0 {
		return -1
	}
	return d.Milliseconds()
}

// inspectLimit bounds the look at a sink before one of its transactions is ended: others wait for what comes of it.
const inspectLimit = 10 * time.Second

// ResolveTransaction implements operator.TransactionInspector: it keeps people from losing records, or writing them twice, by mistake. Only
// what the sink shows as this instance's share is ended: of everything else nobody here knows whether a checkpoint lists it.
func (d *twoPhase[T, Txn]) ResolveTransaction(ctx context.Context, r operator.Resolution) (already bool, err error) {
	pending := d.pending(r.Restored)
	limited, cancel := context.WithTimeout(ctx, inspectLimit)
	in, err := d.inspect(limited, pending, r.Scope)
	cancel()
	if errors.Is(err, errNotShown) {
		return false, ErrNotFound
	}
	if err != nil && len(in.Pending) != len(pending) {
		return false, fmt.Errorf("sink %s: %w: %w", d.uid, ErrNotAsked, err)
	}
	is := func(t Transaction) bool { return t.ID == r.ID }
	i, o := slices.IndexFunc(in.Pending, is), slices.IndexFunc(in.Others, is)
	var k known
	open := o >= 0
	if i >= 0 {
		k = pending[i]
		open = open || in.Pending[i].State == TransactionPrepared
	}
	switch {
	case i >= 0 && d.current(in.Pending[i]), o >= 0 && d.current(in.Others[o]):
		return false, d.ofRunning(r.ID)
	case i < 0 && o < 0 && err != nil:
		return false, fmt.Errorf("sink %s: %w: %w", d.uid, ErrNotAsked, err)
	case i < 0 && o < 0:
		return in.ended(r.ID, r.Commit)
	case r.Force, !open: // how it ended cannot be changed any more, and is told
	case r.Commit && !k.listed:
		return false, fmt.Errorf("%w: no completed checkpoint lists transaction %s, so its records are read again, or were; committing it shows them twice", operator.ErrSafeguard, r.ID)
	case !r.Commit && k.listed:
		return false, fmt.Errorf("%w: completed checkpoint %d lists transaction %s, so nobody reads its records again; aborting it loses them", operator.ErrSafeguard, k.checkpoint, r.ID)
	}
	already, err = d.inspector.Resolve(ctx, r.ID, k.c, r.Commit)
	if l := (*LostError)(nil); errors.As(err, &l) && l.Sink == "" {
		filled := *l
		filled.Sink, filled.Checkpoint = d.uid, k.checkpoint
		return already, &filled
	}
	return already, err
}

// ended answers for a transaction that is in neither list, by what is known of how it ended.
func (in Inspection) ended(id string, commit bool) (already bool, err error) {
	i := slices.IndexFunc(in.Ended, func(t Transaction) bool { return t.ID == id })
	switch {
	case i < 0:
		return false, fmt.Errorf("%w: %s", ErrNotFound, id)
	case in.Ended[i].State == TransactionCommitted && !commit:
		return false, fmt.Errorf("transaction %s: %w", id, ErrCommitted)
	case in.Ended[i].State == TransactionAborted && commit:
		return false, fmt.Errorf("transaction %s: %w: it is aborted", id, ErrLost)
	}
	return true, nil
}

func (d *twoPhase[T, Txn]) ofRunning(id string) error {
	return fmt.Errorf("%w: the running attempt %d is at work with transaction %s and ends it by itself; stop or cancel the job to end it otherwise", operator.ErrSafeguard, d.attempt, id)
}

// Lost implements operator.LossReporter.
func (d *twoPhase[T, Txn]) Lost() []*jobv1.LostOutput { return d.lost }

// located returns the losses in err with sink and checkpoint filled in.
func (d *twoPhase[T, Txn]) located(cs []*snapshotv1.Committable, err error) []*LostError {
	var out []*LostError
	for _, l := range Losses(err) {
		filled := *l
		if filled.Sink == "" {
			filled.Sink = d.uid
		}
		for _, c := range cs {
			if filled.Payload == nil && len(cs) == 1 || filled.Payload != nil && bytes.Equal(filled.Payload, c.GetPayload()) {
				filled.Checkpoint, filled.Payload = c.GetCheckpoint(), c.GetPayload()
			}
		}
		out = append(out, &filled)
	}
	return out
}

// drop takes the losses that the policy accepts off the list and notes them.
func (d *twoPhase[T, Txn]) drop(restored []Committable, losses []*LostError) (left []Committable) {
	for _, c := range restored {
		i := slices.IndexFunc(losses, func(l *LostError) bool { return l.Payload != nil && bytes.Equal(l.Payload, c.Payload) })
		accepted := i >= 0 && (d.losses == operator.AcceptUnknown || d.losses == operator.AcceptLost && !losses[i].Unknown)
		if !accepted {
			left = append(left, c)
			continue
		}
		d.lost = append(d.lost, losses[i].output())
		d.commits.logger.Warn("output is lost", "transaction", losses[i].Transaction, "checkpoint", losses[i].Checkpoint, "reason", losses[i])
	}
	return left
}

// output is the loss as it is recorded.
func (e *LostError) output() *jobv1.LostOutput {
	return &jobv1.LostOutput{
		Sink: e.Sink, Checkpoint: e.Checkpoint, Transaction: e.Transaction, Parts: parts(e.Parts), Records: e.Records(), Reason: e.Detail, Unknown: e.Unknown,
	}
}

// LossesOf returns what was lost as it is recorded, for an error that tells of it.
func LossesOf(err error) (out []*jobv1.LostOutput) {
	for _, l := range Losses(err) {
		out = append(out, l.output())
	}
	return out
}

// lossError makes one error of losses.
func lossError(losses []*LostError) error {
	errs := make([]error, len(losses))
	for i, l := range losses {
		errs[i] = l
	}
	return operator.DataLoss(errors.Join(errs...))
}
