package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

// transactional is the exactly-once sink of one subtask.
type transactional[T any] struct {
	encoder[T]
	ids     slots.Scheme
	lanes   *lanes
	logger  *slog.Logger
	current *txn
	place   sinks.Context
	v2      bool // the cluster speaks the second transaction protocol
}

// txn is an open transaction.
type txn struct{ lane *lane }

var (
	_ sinks.TwoPhaseCommitSink[int, *txn] = (*transactional[int])(nil)
	_ sinks.Releaser                      = (*transactional[int])(nil)
	_ sinks.Prover                        = (*transactional[int])(nil)
	_ sinks.Inspector                     = (*transactional[int])(nil)
	_ sinks.TimeLimited                   = (*transactional[int])(nil)
	_ sinks.Rewriter[*txn]                = (*transactional[int])(nil)
)

// Open meets the cluster, checks the transaction timeout, and initialises the first id of this attempt, so that what the broker
// refuses is told before anything runs. Ids of former attempts are not touched.
func (s *transactional[T]) Open(ctx context.Context, sc sinks.Context) error {
	s.logger, s.place = sc.Logger, sc
	if err := s.connect(ctx, sc); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	limit, known, err := s.cluster.maxTimeout(asking)
	if err != nil {
		return fmt.Errorf("ask for the broker's transaction.max.timeout.ms: %w", err)
	}
	s.timeout, s.cluster.timeoutCap = limit, limit
	s.ids = slots.NewScheme(s.settings.prefix, sc)
	v2, err := s.cluster.transactionsV2(asking)
	if err != nil {
		return err
	}
	s.v2 = v2
	if s.settings.timeout != nil {
		s.timeout = *s.settings.timeout
		if !sc.SettleOnly && known && s.timeout > limit {
			return operator.Fatal(fmt.Errorf("transaction timeout %s is above the broker's cap transaction.max.timeout.ms = %s; lower the sink's transaction timeout or raise the broker's cap", s.timeout, limit))
		}
	}
	if err := checkTimeout(s.timeout, sc.Checkpoints); err != nil && !sc.SettleOnly {
		return operator.Fatal(err)
	}
	open := func(slot int) (*lane, error) {
		return s.newLane(slot, s.ids.ID(sc.Attempt, sc.Subtask, slot), v2)
	}
	// Whether ids must be initialised anew before each reuse is decided by the protocol the client really speaks.
	probe, err := open(0)
	if err != nil {
		return err
	}
	renew := !probe.producer.TransactionsV2()
	probe.producer.Close()
	s.lanes = newLanes(slotBound(sc.Checkpoints), renew, s.settings.deadline, s.logger, open)
	if sc.SettleOnly {
		return nil // nothing will be written
	}
	return refusedTimeout(s.lanes.ready(ctx), s.timeout)
}

func (s *transactional[T]) newLane(slot int, id string, v2 bool) (*lane, error) {
	t := s.newTracker(id)
	p, err := s.settings.newProducer(s.producerConfig(id, v2, t))
	if err != nil {
		return nil, err
	}
	return &lane{slot: slot, id: id, producer: p, tracker: t}, nil
}

func (e *encoder[T]) producerConfig(id string, v2 bool, t *tracker) ProducerConfig {
	return ProducerConfig{
		Brokers: e.settings.brokers, TransactionalID: id, TransactionTimeout: e.timeout, TransactionsV2: v2,
		Partitioner: e.settings.partitioner, Linger: e.settings.linger, Deadline: e.settings.deadline,
		MaxRecordBytes: e.cluster.maxRecordBytes, Security: e.settings.security, Options: e.settings.options, Delivered: t.delivered, Logger: e.cluster.logger,
		Writing: func(ctx context.Context) (Identity, error) { return e.cluster.writing(ctx, id) },
	}
}

func (s *transactional[T]) Begin(ctx context.Context) (*txn, error) {
	l, err := s.lanes.acquire(ctx)
	if err != nil {
		return nil, err
	}
	s.current = &txn{l}
	return s.current, nil
}

func (s *transactional[T]) Write(ctx context.Context, t *txn, v T, timestamp int64) error {
	return s.write(ctx, t.lane, v, timestamp)
}

func (s *transactional[T]) PreCommit(ctx context.Context, t *txn) (sinks.Committable, error) {
	l := t.lane
	if !l.begun {
		s.current = nil
		return sinks.Committable{}, s.lanes.putBack(l)
	}
	topics, err := l.flush(ctx, s.settings.deadline)
	if err != nil {
		return sinks.Committable{}, s.explain(ctx, err)
	}
	faultpoint.Hit(faultpoint.Flushed)
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	identity, err := l.producer.Identity(ctx)
	if err != nil {
		return sinks.Committable{}, fmt.Errorf("ask for the identity of transaction %s: %w", l.id, l.failure(err))
	}
	if err := s.cluster.sameTopics(ctx, topics); err != nil {
		return sinks.Committable{}, err
	}
	p := prepared{ID: l.id, Identity: identity, Started: l.started, Topics: topics}
	if err := s.lanes.prepared(l); err != nil {
		return sinks.Committable{}, err
	}
	s.current = nil
	return p.encode(), nil
}

// Commit ends a transaction by its client's own call, which keeps the client in step. Any doubt is settled by identity, and the client
// is given up.
func (s *transactional[T]) Commit(ctx context.Context, c sinks.Committable) error {
	p, err := decodeCommittable(c)
	if err != nil {
		return operator.Fatal(err)
	}
	if l := s.lanes.find(p.ID); l != nil {
		ok, err := s.commitOwn(ctx, l, p)
		if err != nil {
			return err
		}
		if ok {
			return s.lanes.committed(p.ID)
		}
	}
	if err := s.cluster.finish(ctx, p); err != nil {
		return err
	}
	return s.lanes.committed(p.ID)
}

func (s *transactional[T]) commitOwn(ctx context.Context, l *lane, p *prepared) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if err := s.cluster.stillThere(ctx, p); err != nil {
		return false, err
	}
	err := faultpoint.Err(faultpoint.OwnCommitDue)
	if err == nil {
		err = l.producer.Commit(ctx)
	}
	if answers.React(answers.Own, err) != answers.Done {
		s.logger.Warn("the client's commit left doubt; going on by the transaction's identity", "transaction", p.ID, "error", err)
		s.lanes.distrust(l)
		return false, nil
	}
	return true, nil
}

func (s *transactional[T]) Release(c sinks.Committable) {
	p, err := decodeCommittable(c)
	if err == nil {
		err = s.lanes.release(p.ID)
	}
	if err != nil {
		s.logger.Error("cannot free a transactional id", "error", err)
	}
}

// errOverdue tells that a transaction may be ended by the broker before a recovery could commit it.
var errOverdue = errors.New("transaction is too near its timeout")

// Prove checks by age, and where that does not suffice by asking, that the broker will not end a pending transaction within budget.
//
// Age is counted from before the transaction's first record by the monotonic clock, so it is never below what the broker counts while this
// machine runs. The times that the broker tells are those of another clock and decide nothing. A monotonic clock may stand still while a
// machine sleeps; the wall clock then runs ahead, and so the broker is asked whether the transaction is still there.
func (s *transactional[T]) Prove(ctx context.Context, pending []sinks.Committable, budget time.Duration) error {
	var old []*prepared
	for _, c := range pending {
		p, err := decodeCommittable(c)
		if err != nil {
			return err
		}
		age, known := s.lanes.age(p.ID)
		if !known || s.timeout-age <= budget || jumped(time.Since(p.Started), age) {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	for _, p := range old {
		if err := s.stillOpen(ctx, p, budget); err != nil {
			return err
		}
	}
	return nil
}

func (s *transactional[T]) stillOpen(ctx context.Context, p *prepared, budget time.Duration) error {
	view, err := s.cluster.view(ctx, p)
	if err != nil {
		return fmt.Errorf("ask for the state of transaction %s: %w", p.ID, err)
	}
	switch view {
	case viewCommitting:
		return nil // beside the task
	case viewAborting:
		return fmt.Errorf("%w: the broker is ending %s (%s)", errOverdue, p.ID, p)
	case viewOther:
		return s.ended(ctx, p)
	case viewOpen:
	}
	if age, known := s.lanes.age(p.ID); !known || s.timeout-age <= budget {
		return fmt.Errorf("%w: %s is open for %s of %s and a recovery may take %s", errOverdue, p.ID, age.Round(time.Millisecond), s.timeout, budget)
	}
	return nil
}

// ended waits until it shows how a transaction that is open no longer has ended. It may just have been committed beside the task, which the
// lanes know soon; the markers may stay out of sight for as long as somebody else's transaction in front of it is open. Only a commit is no
// trouble.
func (s *transactional[T]) ended(ctx context.Context, p *prepared) error {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		proof, err := s.cluster.prove(ctx, p)
		switch {
		case s.lanes.over(p.ID), err == nil && proof == verdictCommitted:
			return nil
		case err != nil:
			return fmt.Errorf("ask how transaction %s ended: %w", p.ID, err)
		case proof != verdictOpen || !kafkaconn.Sleep(ctx, pause):
			return fmt.Errorf("%w: %s is open no longer, and %s (%s)", errOverdue, p.ID, proof, p)
		}
	}
}

// clockSlack is how much the wall clock may differ from the monotonic one over a transaction's life before it counts as set.
const clockSlack = time.Minute

// jumped reports whether the wall clock was set, or the machine slept, between two moments that lie wall and age apart.
func jumped(wall, age time.Duration) bool { return (wall - age).Abs() > clockSlack }

// Abort gives the client up and initialises its id, which ends the transaction whatever state the client is in.
func (s *transactional[T]) Abort(ctx context.Context, t *txn) error {
	if s.current == t {
		s.current = nil
	}
	if !t.lane.begun {
		return s.lanes.putBack(t.lane)
	}
	t.lane.producer.Close()
	return s.cluster.initID(ctx, t.lane.id)
}

// recoverAtOnce is how many transactions a restore finishes at the same time.
const recoverAtOnce = 16

func (s *transactional[T]) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	todo := make([]*prepared, len(cs))
	for i, c := range cs {
		p, err := decodeCommittable(c)
		if err != nil {
			return operator.Fatal(err)
		}
		todo[i] = p
	}
	errs := make([]error, len(todo))
	slots := make(chan struct{}, recoverAtOnce) // a full one makes the next wait
	for i, p := range todo {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			if errs[i] = s.cluster.finish(ctx, p); errs[i] == nil {
				faultpoint.Hit(faultpoint.RecoveredOne)
			}
		}()
	}
	for range recoverAtOnce {
		slots <- struct{}{}
	}
	// A proven outcome weighs more than one that may still come.
	var lost []error
	for _, err := range errs {
		if errors.Is(err, sinks.ErrLost) || errors.Is(err, sinks.ErrUnknown) {
			lost = append(lost, err)
		}
	}
	if len(lost) > 0 {
		return errors.Join(lost...)
	}
	return errors.Join(errs...)
}

func (s *transactional[T]) RecoverAbort(ctx context.Context, scope operator.Scope) error {
	return s.cluster.initIDs(ctx, s.ids.Share(scope), scope.Again)
}

// abortLimit bounds the end of a transaction at Close; a successor's fencing ends what is left.
const abortLimit = 3 * time.Second

func (s *transactional[T]) Close() error {
	var err error
	if s.current != nil && s.current.lane.begun {
		ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
		err = s.Abort(ctx, s.current)
		cancel()
	}
	if s.lanes != nil {
		s.lanes.close()
	}
	s.close()
	return err
}
