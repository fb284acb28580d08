package stream

import (
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/ingest"
	"github.com/weir-stream/weir/operator/transform"
	"github.com/weir-stream/weir/operator/watermark"
)

// Stream is the output of an operator: records of type T. Its methods that return the same stream change the operator that makes it.
type Stream[T any] struct {
	env  *Env
	node *node
	// source is set for the output of a source.
	source *ingest.Config[T]
}

// Named names the operator. The name is shown, and is the operator's uid unless [Stream.UID] sets another.
func (s *Stream[T]) Named(name string) *Stream[T] {
	s.node.op.Name, s.node.op.NamedByUser = name, true
	return s
}

// UID sets the uid by which the operator's state is found again, apart from the name.
func (s *Stream[T]) UID(uid string) *Stream[T] {
	s.node.op.UID, s.node.op.NamedByUser = uid, true
	return s
}

// Parallelism sets the operator's number of subtasks; the default is the job's.
func (s *Stream[T]) Parallelism(n int) *Stream[T] {
	s.node.op.Parallelism = n
	return s
}

// NoChain makes the operator run in a task of its own instead of its upstream operator's.
func (s *Stream[T]) NoChain() *Stream[T] {
	s.node.op.NoChain = true
	return s
}

// WithCodec sets how the operator's records are encoded between tasks; the default is codec.For.
func (s *Stream[T]) WithCodec(c codec.Codec[T]) *Stream[T] {
	s.node.outCodec = c
	return s
}

// WatermarkStrategy says how event time advances.
type WatermarkStrategy = watermark.Strategy

// BoundedOutOfOrder expects a record to be at most d behind the latest one of its split.
//
// A split that its source has found empty for 30 s, or what [WatermarkStrategy.WithIdleTimeout] sets, holds event time back no
// longer until it has a record again. When all splits are silent event time comes as far as the furthest of them and then stands
// still: windows beyond that close with the next record or the end of input.
func BoundedOutOfOrder(d time.Duration) WatermarkStrategy { return watermark.BoundedOutOfOrder(d) }

// Monotonous expects timestamps that never go back within a split. Idleness is as for [BoundedOutOfOrder].
func Monotonous() WatermarkStrategy { return watermark.Monotonous() }

// WithWatermarks sets the event time of the records and how it advances. at returns a record's event time; the zero time means that
// it has none, and a nil function keeps the timestamps that the source gave.
//
// Directly on a source each split has a watermark of its own and the source itself changes; anywhere else an operator is added whose
// subtasks each have one. Prefer the former: splits read at different speed then make no records late.
func (s *Stream[T]) WithWatermarks(at func(T) time.Time, strategy WatermarkStrategy) *Stream[T] {
	stamp := func(v T, timestamp int64) int64 {
		t := at(v)
		if t.IsZero() {
			return operator.NoTimestamp
		}
		return t.UnixMilli()
	}
	if at == nil {
		stamp = nil
	}
	if s.source != nil {
		s.source.Timestamp, s.source.Watermarks = stamp, strategy
		s.node.watermarks = strategy.Enabled()
		return s
	}
	if stamp == nil {
		stamp = func(_ T, timestamp int64) int64 { return timestamp }
	}
	out := unary[T](s, "timestamps", transform.AssignTimestamps(stamp, strategy))
	out.node.op.Stateful = true
	out.node.watermarks = strategy.Enabled()
	out.node.outCodec = s.node.outCodec
	return out
}

// Filter keeps the records for which keep is true.
func (s *Stream[T]) Filter(keep func(T) bool) *Stream[T] {
	out := unary[T](s, "filter", transform.Filter(func(v T) (bool, error) { return keep(v), nil }))
	out.node.outCodec = s.node.outCodec
	return out
}

// Union returns a stream of the records of this and all other streams.
func (s *Stream[T]) Union(others ...*Stream[T]) *Stream[T] {
	out := unary[T](s, "union", transform.Union[T]())
	for _, o := range others {
		connect(o, out.node)
	}
	out.node.outCodec = s.node.outCodec
	return out
}
