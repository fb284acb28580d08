package filesink

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

var _ sinks.Inspector = (*transactional[int])(nil)

// shows tells users the fate of a transaction.
func (f fate) shows() sinks.TransactionState {
	switch f {
	case isPending, isPartlyCommitted:
		return sinks.TransactionPrepared
	case isCommitted:
		return sinks.TransactionCommitted
	default:
		return sinks.TransactionAborted
	}
}

// fateOf finds out what became of a transaction. That it is missing is known only in the place where it was.
func (s *transactional[T]) fateOf(ctx context.Context, p *prepared) (fate, error) {
	f, err := fateOf(ctx, s.store, p)
	if err == nil && f == isMissing {
		err = s.here(ctx, p.Sink)
	}
	return f, err
}

// Inspect implements sinks.Inspector.
func (s *transactional[T]) Inspect(ctx context.Context, pending []sinks.Committable, scope operator.Scope) (in sinks.Inspection, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	known := map[string]bool{}
	for _, c := range pending {
		p, err := decodeCommittable(c)
		if err != nil {
			return sinks.Inspection{}, err
		}
		f, err := s.fateOf(ctx, p)
		if err != nil {
			return sinks.Inspection{}, err
		}
		t := describe(p.writer, p.Sequence, f.shows())
		for _, f := range p.Files {
			t.Parts = append(t.Parts, sinks.Part{Place: f.Final, Records: f.Records})
		}
		known[t.ID] = true
		in.Pending = append(in.Pending, t)
	}
	others := map[string]*sinks.Transaction{}
	for name, err := range s.store.List(ctx, sinkDir(s.writer.Sink)) {
		if err != nil {
			return sinks.Inspection{}, err
		}
		l, ok := parseLeftover(s.writer.Sink, name)
		if !ok || known[l.id(l.sequence)] || !s.answersFor(l.writer, scope) {
			continue
		}
		t := others[l.id(l.sequence)]
		if t == nil {
			first := describe(l.writer, l.sequence, sinks.TransactionPrepared)
			t = &first
			others[t.ID] = t
		}
		if !l.pending {
			t.State = sinks.TransactionOpen
		}
		t.Parts = append(t.Parts, sinks.Part{Place: name, Records: -1})
	}
	for _, t := range others {
		in.Others = append(in.Others, *t)
	}
	slices.SortFunc(in.Others, func(a, b sinks.Transaction) int { return cmp.Compare(a.ID, b.ID) })
	return in, nil
}

func describe(w writer, sequence uint64, state sinks.TransactionState) sinks.Transaction {
	return sinks.Transaction{ID: w.id(sequence), Attempt: w.Attempt, Subtask: w.Subtask, State: state, Age: -1, Left: -1}
}

// answersFor reports whether a writer is this one or one of the scope's share.
func (s *transactional[T]) answersFor(w writer, scope operator.Scope) bool {
	return w == s.writer || slices.ContainsFunc(scope.Attempts, func(a operator.FormerAttempt) bool {
		return a.Attempt == w.Attempt && w.Subtask < a.Parallelism && w.Subtask%scope.Parallelism == scope.Subtask
	})
}

// Resolve implements sinks.Inspector.
func (s *transactional[T]) Resolve(ctx context.Context, id string, c sinks.Committable, commit bool) (already bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if c.Payload == nil {
		return s.resolveLeftover(ctx, id, commit)
	}
	p, err := decodeCommittable(c)
	if err != nil {
		return false, err
	}
	f, err := s.fateOf(ctx, p)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
	case commit:
		return f == isCommitted, s.publish(ctx, p)
	case f == isCommitted, f == isPartlyCommitted:
		return false, fmt.Errorf("transaction %s: %w", id, sinks.ErrCommitted)
	}
	for _, f := range p.Files {
		if err := s.store.Remove(ctx, f.Pending); err != nil {
			return false, fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
	}
	return f == isMissing, nil
}

// resolveLeftover ends a transaction of which only the files are known.
func (s *transactional[T]) resolveLeftover(ctx context.Context, id string, commit bool) (bool, error) {
	if !strings.HasPrefix(id, s.writer.Sink+"/") {
		return false, sinks.ErrNotFound
	}
	var found []string
	for name, err := range s.store.List(ctx, sinkDir(s.writer.Sink)) {
		if err != nil {
			return false, fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
		if l, ok := parseLeftover(s.writer.Sink, name); ok && l.id(l.sequence) == id {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return false, sinks.ErrNotFound
	}
	if commit {
		return false, fmt.Errorf("%w: no checkpoint lists transaction %s, so nobody knows the names that its files were to get", sinks.ErrUnknown, id)
	}
	for _, name := range found {
		if err := s.store.Remove(ctx, name); err != nil {
			return false, fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
	}
	return false, nil
}
