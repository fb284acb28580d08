package streamtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// Sink is a sink in memory. With checkpoints it is exactly-once: records are visible when the checkpoint after them is completed.
// One sink may be used for a job and what is restored from it.
type Sink[T any] struct {
	sinks.Sink[T]
	store *sinkStore[T]
}

// NewSink returns an empty sink.
func NewSink[T any]() *Sink[T] {
	store := &sinkStore[T]{prepared: make(map[uint64][]Record[T])}
	return &Sink[T]{store: store, Sink: sinks.TwoPhase(sinks.TwoPhaseConfig[T, *transaction[T]]{
		Kind: "test",
		New: func() (sinks.TwoPhaseCommitSink[T, *transaction[T]], error) {
			return &transactional[T]{store: store}, nil
		},
		NewWriter: func() (sinks.Writer[T], error) { return &plain[T]{store: store}, nil },
	})}
}

// Records returns the records that are visible, in the order in which they became so.
func (s *Sink[T]) Records() []Record[T] {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	return append([]Record[T](nil), s.store.visible...)
}

// Values returns the values of the records that are visible.
func (s *Sink[T]) Values() []T {
	var values []T
	for _, r := range s.Records() {
		values = append(values, r.Value)
	}
	return values
}

// Clear removes the records that are visible.
func (s *Sink[T]) Clear() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.visible = nil
}

// sinkStore is the system that a sink writes to. Commits come from a goroutine of their own.
type sinkStore[T any] struct {
	mu       sync.Mutex
	visible  []Record[T]
	prepared map[uint64][]Record[T]
	last     uint64 // number of the last transaction prepared
}

func (s *sinkStore[T]) write(rs ...Record[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.visible = append(s.visible, rs...)
}

func record[T any](v T, timestamp int64) Record[T] {
	if timestamp == operator.NoTimestamp {
		return Record[T]{Value: v}
	}
	return Record[T]{v, time.UnixMilli(timestamp).UTC()}
}

// plain writes at once.
type plain[T any] struct{ store *sinkStore[T] }

// Open implements sinks.Writer.
func (p *plain[T]) Open(context.Context, sinks.Context) error { return nil }

// Write implements sinks.Writer.
func (p *plain[T]) Write(_ context.Context, v T, timestamp int64) error {
	p.store.write(record(v, timestamp))
	return nil
}

// Flush implements sinks.Writer.
func (p *plain[T]) Flush(context.Context) error { return nil }

// Close implements sinks.Writer.
func (p *plain[T]) Close() error { return nil }

// transaction gathers records.
type transaction[T any] struct{ records []Record[T] }

// transactional writes in transactions.
type transactional[T any] struct{ store *sinkStore[T] }

// Open implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Open(context.Context, sinks.Context) error { return nil }

// Begin implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Begin(context.Context) (*transaction[T], error) {
	return &transaction[T]{}, nil
}

// Write implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Write(_ context.Context, txn *transaction[T], v T, timestamp int64) error {
	txn.records = append(txn.records, record(v, timestamp))
	return nil
}

// PreCommit implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) PreCommit(_ context.Context, txn *transaction[T]) (sinks.Committable, error) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.store.last++
	t.store.prepared[t.store.last] = txn.records
	return sinks.Committable{Version: 1, Payload: binary.AppendUvarint(nil, t.store.last)}, nil
}

// Commit implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Commit(_ context.Context, c sinks.Committable) error {
	id, n := binary.Uvarint(c.Payload)
	if n != len(c.Payload) || n <= 0 {
		return fmt.Errorf("committable %x is malformed", c.Payload)
	}
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.store.visible = append(t.store.visible, t.store.prepared[id]...)
	delete(t.store.prepared, id)
	return nil
}

// Abort implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Abort(context.Context, *transaction[T]) error { return nil }

// RecoverCommit implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	for _, c := range cs {
		if err := t.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// RecoverAbort implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) RecoverAbort(context.Context, operator.Scope) error {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	clear(t.store.prepared)
	return nil
}

// Close implements sinks.TwoPhaseCommitSink.
func (t *transactional[T]) Close() error { return nil }
