package filesink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// transactional is the exactly-once sink of one subtask. A transaction is the files of one interval.
type transactional[T any] struct {
	parts[T]

	mu sync.Mutex
	// unsettled are the sequences that are prepared and not committed, ascending; newest is the newest one prepared.
	unsettled []uint64
	newest    uint64
	// lost is the lowest sequence of each writer that was found lost. The driver asks again without what is accepted as lost, and the loss
	// may not be in the log when this worker dies, so that a successor must find it too.
	lost map[writer]uint64

	settleOnly bool
}

// txn stands for the files of the interval, which the sink itself keeps.
type txn struct{}

var _ sinks.TwoPhaseCommitSink[int, txn] = (*transactional[int])(nil)

func (p *parts[T]) Open(ctx context.Context, sc sinks.Context) (err error) {
	p.writer = writer{Sink: sinkName(sc), Attempt: sc.Attempt, Subtask: sc.Subtask}
	p.now = sc.Now
	ctx, cancel := context.WithTimeout(ctx, p.settings.deadline)
	defer cancel()
	p.store, err = p.settings.place.Open(ctx)
	return err
}

// Open also makes sure that the place is the one where the job has written before, and leaves a note for the other subtasks.
func (s *transactional[T]) Open(ctx context.Context, sc sinks.Context) error {
	if err := s.parts.Open(ctx, sc); err != nil {
		return err
	}
	if s.settleOnly = sc.SettleOnly; s.settleOnly {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	for _, c := range sc.Listed {
		p, err := decodeCommittable(c)
		if err != nil {
			return operator.Fatal(err)
		}
		if p.Sink != s.writer.Sink {
			continue // of the job that this one goes on from, which may have written to another place
		}
		if err := s.here(ctx, p.Sink); err != nil {
			return err
		}
	}
	return s.leave(ctx)
}

func (s *transactional[T]) Begin(ctx context.Context) (txn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if err := s.unfenced(ctx); err != nil {
		return txn{}, err
	}
	s.begin()
	return txn{}, nil
}

func (s *transactional[T]) Write(ctx context.Context, _ txn, v T, timestamp int64) error {
	return s.write(ctx, v, timestamp)
}

func (s *transactional[T]) PreCommit(ctx context.Context, _ txn) (sinks.Committable, error) {
	files, err := s.sealAll(ctx)
	if err != nil {
		return sinks.Committable{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	// Looked at after the files are sealed: a successor that has not seen them is seen here.
	if err := s.unfenced(ctx); err != nil {
		return sinks.Committable{}, errors.Join(err, s.discard(ctx))
	}
	s.mu.Lock()
	s.newest = s.sequence
	s.unsettled = append(s.unsettled, s.sequence)
	s.mu.Unlock()
	p := prepared{writer: s.writer, Sequence: s.sequence, Files: files}
	s.open, s.sealed = nil, nil
	return p.encode()
}

func (s *transactional[T]) Commit(ctx context.Context, c sinks.Committable) error {
	p, err := decodeCommittable(c)
	if err != nil {
		return operator.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if err := s.publish(ctx, p); err != nil {
		if errors.Is(err, sinks.ErrLost) && p.writer == s.writer {
			if ferr := s.unfenced(ctx); ferr != nil {
				return ferr // removed by a successor that reads the records again
			}
		}
		return err
	}
	return raise(ctx, s.store, p.settledName(), s.settled(p))
}

// publish finishes the files of a transaction and notes when it is lost.
func (s *transactional[T]) publish(ctx context.Context, p *prepared) error {
	err := publish(ctx, s.store, p)
	if errors.Is(err, sinks.ErrLost) {
		if herr := s.here(ctx, p.Sink); herr != nil {
			return herr
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.lost == nil {
			s.lost = make(map[writer]uint64)
		}
		if first, ok := s.lost[p.writer]; !ok || p.Sequence < first {
			s.lost[p.writer] = p.Sequence
		}
	}
	return err
}

// settled returns up to which sequence all transactions of p's writer are committed, now that p is. It is always below one that is lost.
func (s *transactional[T]) settled(p *prepared) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	through := s.through(p)
	if first, ok := s.lost[p.writer]; ok {
		through = min(through, first-1)
	}
	return through
}

func (s *transactional[T]) through(p *prepared) uint64 {
	if p.writer != s.writer {
		return p.Sequence
	}
	s.unsettled = slices.DeleteFunc(s.unsettled, func(n uint64) bool { return n == p.Sequence })
	if len(s.unsettled) > 0 {
		return s.unsettled[0] - 1
	}
	return s.newest
}

// RecoverCommit goes in order within each writer, since a note of one sequence stands for all before it.
func (s *transactional[T]) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	var ps []*prepared
	for _, c := range cs {
		p, err := decodeCommittable(c)
		if err != nil {
			return operator.Fatal(err)
		}
		ps = append(ps, p)
	}
	slices.SortStableFunc(ps, func(a, b *prepared) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var losses []error
	for _, p := range ps {
		pctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
		err := s.publish(pctx, p)
		if err == nil {
			err = raise(pctx, s.store, p.settledName(), s.settled(p))
		}
		cancel()
		if errors.Is(err, sinks.ErrLost) {
			losses = append(losses, err)
			continue
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(losses...)
}

func (s *transactional[T]) RecoverAbort(ctx context.Context, scope operator.Scope) error {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if !scope.Again && !s.settleOnly {
		if err := s.meet(ctx); err != nil {
			return err
		}
	}
	return recoverAbort(ctx, s.store, s.writer, scope)
}

func (s *transactional[T]) Abort(ctx context.Context, _ txn) error {
	if err := s.discard(ctx); err != nil {
		return fmt.Errorf("remove files that are not finished: %w", err)
	}
	return nil
}

func (p *parts[T]) Close() error {
	if p.store == nil {
		return nil
	}
	return p.store.Close()
}
