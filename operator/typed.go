package operator

import (
	"fmt"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
)

// NewEdge returns the edge of records of type T for every partitioning but graph.Hash, which needs [NewHashEdge].
func NewEdge[T any](p graph.Partitioning, c codec.Codec[T]) EdgeType {
	return &edge[T]{pool: &batchPool[T]{codec: c}, route: func(cfg WriterConfig, w *writer[T]) Collector[T] {
		switch {
		case len(cfg.Channels) == 1:
			return (*single[T])(w)
		case p == graph.Broadcast:
			return (*broadcast[T])(w)
		default:
			return &rebalance[T]{w: w, current: cfg.Subtask % len(cfg.Channels)}
		}
	}}
}

// NewHashEdge returns the edge that sends each record to the subtask that owns the key group of its key.
func NewHashEdge[K comparable, T any](c codec.Codec[T], key func(T) K, kc codec.Key[K]) EdgeType {
	return &edge[T]{pool: &batchPool[T]{codec: c}, route: func(cfg WriterConfig, w *writer[T]) Collector[T] {
		if len(cfg.Channels) == 1 {
			return (*single[T])(w)
		}
		h := &hash[K, T]{w: w, key: key, codec: kc, channelOf: make([]int32, cfg.MaxParallelism)}
		for g := range h.channelOf {
			h.channelOf[g] = int32(keygroup.Subtask(g, len(cfg.Channels), cfg.MaxParallelism))
		}
		return h
	}}
}

// edge implements EdgeType for one record type.
type edge[T any] struct {
	pool  *batchPool[T]
	route func(cfg WriterConfig, w *writer[T]) Collector[T]
}

// NewWriter implements EdgeType.
func (e *edge[T]) NewWriter(cfg WriterConfig) Writer {
	w := &writer[T]{pool: e.pool, channels: cfg.Channels, open: make([]*batch[T], len(cfg.Channels))}
	w.collector = e.route(cfg, w)
	return w
}

// NewReader implements EdgeType.
func (e *edge[T]) NewReader(in any) (Reader, error) {
	out, ok := in.(Collector[T])
	if !ok {
		return nil, fmt.Errorf("the edge carries records of type %T, the operator takes %T", *new(T), in)
	}
	r := &reader[T]{pool: e.pool, out: out}
	r.expecter, _ = in.(Expecter[T])
	return r, nil
}

// expected is how many records an Expecter is told of at a time: few enough to stay in the processor's first cache with what belongs
// to them.
const expected = 32

// reader passes batches to an operator.
type reader[T any] struct {
	pool     *batchPool[T]
	out      Collector[T]
	expecter Expecter[T] // nil unless out is one
}

// Batch implements Reader.
func (r *reader[T]) Batch(b Batch) error {
	typed, ok := b.(*batch[T])
	if !ok {
		return fmt.Errorf("%w: a batch of %T on an edge of %T", ErrBatch, b, *new(T))
	}
	for i, v := range typed.values {
		if r.expecter != nil && i%expected == 0 {
			r.expecter.Expect(typed.values[i:min(i+expected, len(typed.values))])
		}
		if err := r.out.Collect(v, typed.timestamps[i]); err != nil {
			return err
		}
	}
	typed.Release()
	return nil
}

// Encoded implements Reader.
func (r *reader[T]) Encoded(data []byte) error { return r.pool.decode(data, r.out) }

// writer gathers the batches of one producer subtask, one per channel.
type writer[T any] struct {
	pool      *batchPool[T]
	channels  []Channel
	open      []*batch[T] // nil when nothing is gathered
	scratch   []byte
	collector Collector[T]
}

// Collector implements Writer.
func (w *writer[T]) Collector() any { return w.collector }

// Flush implements Writer.
func (w *writer[T]) Flush() error {
	for ch := range w.open {
		if err := w.send(ch); err != nil {
			return err
		}
	}
	return nil
}

// add puts a record into the batch of a channel and sends the batch when it is full.
func (w *writer[T]) add(ch int, v T, timestamp int64) error {
	b := w.open[ch]
	if b == nil {
		var err error
		if b, err = w.begin(ch, v); err != nil {
			return err
		}
	}
	b.values = append(b.values, v)
	b.timestamps = append(b.timestamps, timestamp)
	if len(b.values) < b.limit {
		return nil
	}
	return w.send(ch)
}

// begin opens a batch. It measures its first record, so that the bound holds also for the first batch and when sizes grow.
func (w *writer[T]) begin(ch int, first T) (*batch[T], error) {
	var err error
	if w.scratch, err = w.pool.codec.Append(w.scratch[:0], first); err != nil {
		return nil, fmt.Errorf("encoding a record: %w", err)
	}
	if size := int64(len(w.scratch)); size > w.pool.recordBytes.Load() {
		w.pool.recordBytes.Store(size)
	}
	if cap(w.scratch) > MaxBatchBytes {
		w.scratch = nil
	}
	b := w.pool.get()
	b.limit = min(w.pool.limit(), w.channels[ch].BatchRecords())
	w.open[ch] = b
	return b, nil
}

func (w *writer[T]) send(ch int) error {
	b := w.open[ch]
	if b == nil {
		return nil
	}
	w.open[ch] = nil
	return w.channels[ch].Send(b)
}

// single is the route over the only channel.
type single[T any] writer[T]

// Collect implements Collector.
func (s *single[T]) Collect(v T, timestamp int64) error {
	return (*writer[T])(s).add(0, v, timestamp)
}

// broadcast is the route over all channels.
type broadcast[T any] writer[T]

// Collect implements Collector.
func (b *broadcast[T]) Collect(v T, timestamp int64) error {
	for ch := range b.channels {
		if err := (*writer[T])(b).add(ch, v, timestamp); err != nil {
			return err
		}
	}
	return nil
}

// rebalance fills one channel's batch after the other, beginning with the producer's own number so that not all producers favour
// the first consumer.
type rebalance[T any] struct {
	w       *writer[T]
	current int
	begun   bool
}

// Collect implements Collector.
func (r *rebalance[T]) Collect(v T, timestamp int64) error {
	if r.begun && r.w.open[r.current] == nil {
		r.current = (r.current + 1) % len(r.w.channels)
	}
	r.begun = true
	return r.w.add(r.current, v, timestamp)
}

// hash routes by key group.
type hash[K comparable, T any] struct {
	w         *writer[T]
	key       func(T) K
	codec     codec.Key[K]
	channelOf []int32 // by key group
	buf       []byte
}

// Collect implements Collector.
func (h *hash[K, T]) Collect(v T, timestamp int64) error {
	h.buf = h.codec.Append(h.buf[:0], h.key(v))
	return h.w.add(int(h.channelOf[keygroup.Of(h.buf, len(h.channelOf))]), v, timestamp)
}
