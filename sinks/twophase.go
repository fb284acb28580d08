package sinks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/statebackend"
)

// TwoPhaseConfig describes a sink with transactions to [TwoPhase].
type TwoPhaseConfig[T, Txn any] struct {
	// Kind names the system.
	Kind string
	// Target names the system and the place in it for people, such as "Kafka at 10.0.0.1:9092"; empty takes Kind.
	Target string
	// Guarantee is the one asked for by the user; the zero value leaves it to the job.
	Guarantee graph.Guarantee
	// Resource is what two sinks of a job may not share; empty for nothing.
	Resource string
	// Validate checks the settings at plan time; nil for nothing to check.
	Validate func(sources.JobSettings) error
	// Slots is the largest number of transactional ids of one subtask; nil, and less than 1, count as 1. RecoverAbort learns it of
	// each former attempt.
	Slots func(sources.JobSettings) int
	// New makes the transactional sink of one subtask.
	New func() (TwoPhaseCommitSink[T, Txn], error)
	// NewWriter makes the writer for the guarantees below exactly-once; nil when the sink gives exactly-once only.
	NewWriter func() (Writer[T], error)
	// DurableOutput keeps what prepared transactions hold with the checkpoints, and writes it again when the system has given a
	// transaction up. It takes exactly-once, and a sink that implements Rewriter.
	DurableOutput bool
	// Ordered is for sinks where a later transaction replaces what an earlier one wrote: when a commit has failed, those of later
	// checkpoints wait for the restore, which commits all in order. Without it they are still tried. Durable output is ordered always.
	Ordered bool
	// RetryLimit bounds how long a commit is repeated while it is undecided, before the task fails and a restore goes on with it;
	// default 1 min.
	RetryLimit time.Duration
}

// TwoPhase makes a sink from a factory of transactional ones.
func TwoPhase[T, Txn any](cfg TwoPhaseConfig[T, Txn]) Sink[T] {
	if cfg.RetryLimit == 0 {
		cfg.RetryLimit = time.Minute
	}
	return twoPhaseSink[T, Txn]{cfg}
}

type twoPhaseSink[T, Txn any] struct{ cfg TwoPhaseConfig[T, Txn] }

func (s twoPhaseSink[T, Txn]) Kind() string               { return s.cfg.Kind }
func (s twoPhaseSink[T, Txn]) Guarantee() graph.Guarantee { return s.cfg.Guarantee }
func (s twoPhaseSink[T, Txn]) Resource() string           { return s.cfg.Resource }

func (s twoPhaseSink[T, Txn]) Supports(g graph.Guarantee) bool {
	return g == graph.ExactlyOnce || s.cfg.NewWriter != nil
}

func (s twoPhaseSink[T, Txn]) Validate(job sources.JobSettings) error {
	var errs []error
	if s.cfg.DurableOutput && job.Guarantee != graph.ExactlyOnce {
		errs = append(errs, errors.New("durable output needs the guarantee exactly-once, and with it checkpoints; ask for them, or leave durable output off"))
	}
	if s.cfg.Validate != nil {
		errs = append(errs, s.cfg.Validate(job))
	}
	return errors.Join(errs...)
}

// DurableOutput reports whether what prepared transactions hold is kept with the checkpoints.
func (s twoPhaseSink[T, Txn]) DurableOutput() bool { return s.cfg.DurableOutput }

// TransactionSlots is at least 1: attempts of a sink without slots are not remembered, so that what they left open would never be
// ended.
func (s twoPhaseSink[T, Txn]) TransactionSlots(job sources.JobSettings) int {
	if s.cfg.Slots == nil {
		return 1
	}
	return max(1, s.cfg.Slots(job))
}

func (s twoPhaseSink[T, Txn]) NewInstance(g graph.Guarantee) (operator.Instance, error) {
	if g != graph.ExactlyOnce {
		if s.cfg.NewWriter == nil {
			return nil, fmt.Errorf("%s sink: only exactly-once is supported", s.cfg.Kind)
		}
		w, err := s.cfg.NewWriter()
		if err != nil {
			return nil, err
		}
		return newPlain(w, g), nil
	}
	sink, err := s.cfg.New()
	if err != nil {
		return nil, err
	}
	d := newTwoPhase(sink, s.cfg.RetryLimit, cmp.Or(s.cfg.Target, s.cfg.Kind))
	d.ordered = s.cfg.Ordered || s.cfg.DurableOutput
	if d.durable = s.cfg.DurableOutput; d.durable && d.rewriter == nil {
		return nil, fmt.Errorf("%s sink: durable output is not supported", s.cfg.Kind)
	}
	return d, nil
}

// twoPhase is the operator instance around a transactional sink. The task's goroutine writes and prepares; commits run in order on a
// goroutine beside it.
type twoPhase[T, Txn any] struct {
	sink   TwoPhaseCommitSink[T, Txn]
	prover Prover
	limit  time.Duration
	uid    string
	budget time.Duration
	out    counter
	target string
	waits  *operator.Waits
	// ordered tells that nothing is committed behind a failed commit.
	ordered bool

	// life ends at Close. It is kept because Collect takes no context.
	life   context.Context //nolint:containedctx // as said
	cancel context.CancelFunc

	txn  Txn
	open bool

	commits committer

	// Durable output.
	rewriter  Rewriter[Txn] // nil when the sink cannot write anything again
	keeper    *keeper       // nil when nothing is kept
	durable   bool
	store     statebackend.SegmentStore
	rewritten *Committable // takes the place of lost transactions, not free yet

	// For people who look at transactions.
	inspector  Inspector // nil when the sink shows none
	attempt    uint64
	settleOnly bool
	losses     operator.LossPolicy
	lost       []*jobv1.LostOutput
	ages       ages
}

var (
	_ operator.Instance             = (*twoPhase[int, int])(nil)
	_ operator.Committer            = (*twoPhase[int, int])(nil)
	_ operator.LossReporter         = (*twoPhase[int, int])(nil)
	_ operator.TransactionInspector = (*twoPhase[int, int])(nil)
	_ operator.Rewriter             = (*twoPhase[int, int])(nil)
)

func newTwoPhase[T, Txn any](sink TwoPhaseCommitSink[T, Txn], limit time.Duration, target string) *twoPhase[T, Txn] {
	d := &twoPhase[T, Txn]{sink: sink, limit: limit, target: target, waits: &operator.Waits{}}
	d.prover, _ = sink.(Prover)
	d.inspector, _ = sink.(Inspector)
	d.rewriter, _ = sink.(Rewriter[Txn])
	return d
}

func (d *twoPhase[T, Txn]) Input() any { return d }

func (d *twoPhase[T, Txn]) Open(ctx context.Context, rt *operator.Runtime) error {
	d.uid = rt.Operator.UID
	d.budget = rt.Checkpoints.RecoveryBudget
	d.out.total = &rt.Stats.Out
	d.waits = &rt.Stats.Waits
	d.attempt, d.settleOnly, d.losses = rt.Attempt, rt.SettleOnly, rt.Losses
	defer d.waits.Begin(d.target + " to answer")()
	d.life, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.commits = committer{commit: d.sink.Commit, target: d.target, waits: d.waits, uid: d.uid, limit: d.limit, logger: rt.Logger, wake: make(chan struct{}, 1)}
	if r, ok := any(d.sink).(Releaser); ok {
		d.commits.release = r.Release
	}
	d.commits.durable, d.commits.ordered, d.store = d.durable, d.ordered, rt.Segments
	if err := d.sink.Open(ctx, contextOf(rt, graph.ExactlyOnce)); err != nil {
		return fmt.Errorf("sink %s: %w", d.uid, err)
	}
	if d.durable && !rt.SettleOnly {
		d.keeper = newKeeper(rt)
		d.rewriter.Keep(d.keeper)
	}
	if limited, ok := any(d.sink).(TimeLimited); ok {
		d.ages.begin(&rt.Stats.Transactions, limited.TransactionTimeout())
	}
	d.commits.committed = d.ages.committed
	d.commits.start(d.life)
	return nil
}

// Collect adds a record to the current transaction, beginning it with the first record after a barrier.
func (d *twoPhase[T, Txn]) Collect(v T, timestamp int64) error {
	if !d.open {
		end := d.waits.Begin(d.target + " to begin a transaction")
		txn, err := d.sink.Begin(d.life)
		end()
		if err != nil {
			return fmt.Errorf("sink %s: begin a transaction: %w", d.uid, err)
		}
		d.txn, d.open = txn, true
		d.ages.begun()
	}
	if err := d.sink.Write(d.life, d.txn, v, timestamp); err != nil {
		return fmt.Errorf("sink %s: %w", d.uid, err)
	}
	d.out.add()
	return nil
}

func (d *twoPhase[T, Txn]) Watermark(wm int64) (int64, error) {
	d.out.publish()
	return wm, nil
}

// Snapshot prepares the current transaction in the call itself: the next record may go out through another producer, and the order
// of records with one key holds only if this transaction's are all accepted before.
func (d *twoPhase[T, Txn]) Snapshot(ctx context.Context, b operator.Barrier) (operator.Finish, error) {
	d.out.publish()
	if d.open {
		end := d.waits.Begin(fmt.Sprintf("%s to accept what was written for checkpoint %d", d.target, b.Checkpoint))
		c, err := d.preCommit(ctx)
		end()
		if err != nil {
			return nil, fmt.Errorf("sink %s: prepare the transaction of checkpoint %d: %w", d.uid, b.Checkpoint, err)
		}
		faultpoint.Hit(faultpoint.Prepared)
		var none Txn
		d.txn, d.open = none, false
		d.ages.prepared(b.Checkpoint, c.Payload != nil)
		if d.keeper != nil {
			if err := d.keeper.seal(b.Checkpoint, c.Payload == nil); err != nil {
				return nil, fmt.Errorf("sink %s: %w", d.uid, err)
			}
		}
		if c.Payload != nil {
			if err := d.commits.prepare(b.Checkpoint, c); err != nil {
				return nil, fmt.Errorf("sink %s: %w", d.uid, err)
			}
		}
	}
	pending, completed, err := d.commits.snapshot(b.Checkpoint)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", d.uid, err)
	}
	if d.prover != nil && len(pending) > 0 {
		cs := make([]Committable, len(pending))
		for i, e := range pending {
			cs[i] = e.Committable
		}
		if err := d.prover.Prove(ctx, cs, d.budget); err != nil {
			return nil, fmt.Errorf("sink %s: checkpoint %d cannot be acknowledged: %w", d.uid, b.Checkpoint, err)
		}
	}
	snap := &snapshotv1.OperatorSnapshot{Uid: d.uid}
	for _, e := range pending {
		snap.Committables = append(snap.Committables, &snapshotv1.Committable{Checkpoint: e.Checkpoint, Version: e.Committable.Version, Payload: e.Committable.Payload})
	}
	if d.keeper == nil {
		return func(context.Context) (*snapshotv1.OperatorSnapshot, error) { return snap, nil }, nil
	}
	prepared := make([]uint64, len(pending))
	for i, e := range pending {
		prepared[i] = e.Checkpoint
	}
	kept := d.keeper.list(b.Checkpoint, completed, prepared)
	return func(ctx context.Context) (*snapshotv1.OperatorSnapshot, error) {
		segments, err := d.keeper.segments(ctx, kept)
		if err != nil {
			return nil, err
		}
		for i, seg := range segments {
			snap.Committables[i].Records = []*snapshotv1.Segment{seg}
		}
		return snap, nil
	}, nil
}

func (d *twoPhase[T, Txn]) preCommit(ctx context.Context) (Committable, error) {
	if err := faultpoint.Err(faultpoint.PrepareDue); err != nil {
		return Committable{}, err
	}
	return d.sink.PreCommit(ctx, d.txn)
}

func (d *twoPhase[T, Txn]) EndInput() error {
	d.out.publish()
	return nil
}

func (d *twoPhase[T, Txn]) Commit(n uint64, done func(error)) { d.commits.request(n, done) }

func (d *twoPhase[T, Txn]) RecoverCommit(ctx context.Context, cs []*snapshotv1.Committable) error {
	if len(cs) == 0 {
		return nil
	}
	restored := make([]Committable, len(cs))
	for i, c := range cs {
		restored[i] = Committable{Version: c.GetVersion(), Payload: c.GetPayload()}
	}
	failed, end := d.waits.BeginTries(fmt.Sprintf("%s to commit %d restored transactions", d.target, len(cs)))
	defer end()
	for len(restored) > 0 {
		err := d.recoverCommit(ctx, failed, restored)
		if err == nil {
			break
		}
		losses := d.located(cs, err)
		left := d.drop(restored, losses)
		if len(left) == len(restored) {
			if len(losses) > 0 {
				return lossError(losses)
			}
			return d.commits.describe("commit restored transactions", cs[0].GetCheckpoint(), err)
		}
		restored = left
	}
	recovered()
	return nil
}

func (d *twoPhase[T, Txn]) recoverCommit(ctx context.Context, failed func(error), restored []Committable) error {
	return retry(ctx, d.limit, failed, func(ctx context.Context) error { return d.recoverOnce(ctx, restored) })
}

func (d *twoPhase[T, Txn]) recoverOnce(ctx context.Context, restored []Committable) error {
	if err := faultpoint.Err(faultpoint.RecoverDue); err != nil {
		return err
	}
	return d.sink.RecoverCommit(ctx, restored)
}

// recovered is where all that can be committed of a restore point is.
func recovered() { faultpoint.Hit(faultpoint.Recovered) }

func (d *twoPhase[T, Txn]) RecoverAbort(ctx context.Context, scope operator.Scope) error {
	failed, end := d.waits.BeginTries(d.target + " to end what former attempts left open")
	defer end()
	err := retry(ctx, d.limit, failed, func(ctx context.Context) error {
		if err := faultpoint.Err(faultpoint.FenceDue); err != nil {
			return err
		}
		return d.sink.RecoverAbort(ctx, scope)
	})
	if err != nil {
		return fmt.Errorf("sink %s: end what former attempts left open: %w", d.uid, err)
	}
	faultpoint.Hit(faultpoint.Fenced)
	if !scope.Again {
		d.freeRewritten()
	}
	return nil
}

// closeTimeout bounds the abort of the current transaction; the successor's fencing ends what is left.
const closeTimeout = 3 * time.Second

func (d *twoPhase[T, Txn]) Close() error {
	if d.cancel == nil {
		return nil // never opened
	}
	d.cancel()
	d.commits.stop()
	var err error
	if d.open {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(d.life), closeTimeout)
		err = d.sink.Abort(ctx, d.txn)
		cancel()
		d.open = false
	}
	return errors.Join(err, d.sink.Close())
}

func contextOf(rt *operator.Runtime, g graph.Guarantee) Context {
	var listed []Committable
	for _, r := range rt.Restored {
		for _, c := range r.GetCommittables() {
			listed = append(listed, Committable{Version: c.GetVersion(), Payload: c.GetPayload()})
		}
	}
	return Context{
		ClusterID: rt.ClusterID, JobID: rt.JobID, JobName: rt.JobName, UID: rt.Operator.UID,
		Attempt: rt.Attempt, Subtask: rt.Subtask, Parallelism: rt.Parallelism,
		Checkpoints: rt.Checkpoints, Guarantee: g, SettleOnly: rt.SettleOnly, Listed: listed, Logger: rt.Logger, Stats: rt.Stats, Now: rt.Clock.Now,
	}
}
