package stream

import (
	"fmt"
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/process"
)

// KeyedStream is a stream whose records of one key are handled in order by one subtask.
type KeyedStream[K comparable, T any] struct {
	stream *Stream[T]
	key    func(T) K
	codec  codec.Key[K]
}

// KeyBy files the records by key. key must always return the same key for a record and change nothing: it may be called more than once for
// one, and for some records before earlier ones are handled.
func KeyBy[K comparable, T any](s *Stream[T], key func(T) K) *KeyedStream[K, T] {
	return &KeyedStream[K, T]{stream: s, key: key}
}

// WithKeyCodec sets how keys are encoded; the default is codec.ForKey. It decides which subtask owns a key and must not change while
// the job has state. Keys must be equal to themselves, which a float that is no number is not.
func (s *KeyedStream[K, T]) WithKeyCodec(c codec.Key[K]) *KeyedStream[K, T] {
	s.codec = c
	return s
}

func (s *KeyedStream[K, T]) keyCodec() (codec.Key[K], error) {
	if s.codec != nil {
		return s.codec, nil
	}
	c, err := codec.ForKey[K]()
	if err != nil {
		return nil, fmt.Errorf("its key, %T, has no codec: %w; choose one with WithKeyCodec", *new(K), err)
	}
	return c, nil
}

// The types of a keyed operator with state and timers of its own, see [Process].
type (
	// States takes the declarations of states.
	States[K comparable] = process.States[K]
	// Handler holds the functions that handle records and timers.
	Handler[K comparable, T, R any] = process.Handler[K, T, R]
	// Context is what is known of the record or timer being handled, and takes its results.
	Context[K comparable, R any] = process.Context[K, R]
	// TTL is how long what is written to a state stays there, see [ProcessingTimeTTL] and [EventTimeTTL].
	TTL = process.TTL
	// Value is one value per key.
	Value[K comparable, V any] = process.Value[K, V]
	// ReducingState is one value per key, into which values are merged.
	ReducingState[K comparable, V any] = process.Reducing[K, V]
	// MapState is a map per key.
	MapState[K, MK comparable, V any] = process.Map[K, MK, V]
	// ListState is a list per key.
	ListState[K comparable, V any] = process.List[K, V]
)

// ProcessingTimeTTL is a time to live in processing time: an entry expires when the clock is at d, in whole milliseconds, after its last
// write. An expired entry is never read again, is not in checkpoints, and takes no space for long. See the guide on state.
func ProcessingTimeTTL(d time.Duration) TTL { return process.ProcessingTimeTTL(d) }

// EventTimeTTL is a time to live in event time: an entry expires when the watermark has come to d, in whole milliseconds, after its last
// write. A write is at the time of the record or timer being handled, or at the watermark if that is later. So a record finds what any
// record less than d before it wrote, and nothing expires while no records come, or by reading old ones again.
func EventTimeTTL(d time.Duration) TTL { return process.EventTimeTTL(d) }

// ValueOf declares a value of type V per key. Without a codec it is encoded by codec.For.
func ValueOf[V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *Value[K, V] {
	return process.NewValue(s, name, c...)
}

// ReducingOf declares a value of type V per key into which others are merged: merge combines two values, the older first, and must not
// modify them. It is kept as a value is, so that a job may change from [ValueOf] to ReducingOf and back. Without a codec it is encoded by
// codec.For.
func ReducingOf[V any, K comparable](s *States[K], name string, merge func(a, b V) V, c ...codec.Codec[V]) *ReducingState[K, V] {
	return process.NewReducing(s, name, merge, c...)
}

// MapOf declares a map per key, of keys of type MK to values of type V. Without a codec the values are encoded by codec.For.
func MapOf[MK comparable, V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *MapState[K, MK, V] {
	return process.NewMap[MK, V](s, name, c...)
}

// ListOf declares a list of values of type V per key. Without a codec they are encoded by codec.For.
func ListOf[V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *ListState[K, V] {
	return process.NewList(s, name, c...)
}

// Process handles each record together with the state of its key. setup declares the states, with [ValueOf], [ReducingOf], [MapOf] and
// [ListOf], and returns the functions that use them. It is called once in the plan and once for every subtask, and does nothing else.
func Process[K comparable, T, R any](s *KeyedStream[K, T], setup func(*States[K]) Handler[K, T, R]) *Stream[R] {
	n := s.stream.env.add(&node{op: graph.Operator{Kind: "process", Stateful: true}})
	n.finish = func(*planner) (operator.Factory, graph.Errors) {
		kc, err := s.keyCodec()
		if err != nil {
			return nil, graph.Errors{err}
		}
		codecs, err := process.Declared(setup)
		if err != nil {
			return nil, graph.Errors{err}
		}
		n.op.Codecs = append([]string{kc.ID()}, codecs...)
		return process.New(process.Config[K, T, R]{Key: s.key, KeyCodec: kc, Setup: setup}), nil
	}
	connectKeyed(s, n)
	return &Stream[R]{env: s.stream.env, node: n}
}
