package stream

import (
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/windowing"
	"github.com/weir-stream/weir/stream/window"
)

// Windowed is a keyed stream cut into windows of time.
type Windowed[K comparable, T any] struct {
	keyed          KeyedStream[K, T]
	windows        window.Windows
	lateness       time.Duration
	processingTime bool
	failUntimed    bool
}

// Window cuts a keyed stream into windows; see package window. Windows are of event time, and fire when the watermark passes their
// end, unless [Windowed.InProcessingTime] is set.
func Window[K comparable, T any](s *KeyedStream[K, T], w window.Windows) *Windowed[K, T] {
	return &Windowed[K, T]{keyed: *s, windows: w}
}

// WithLateness keeps a window for d after it fired: a late record then makes it fire again at once, for the record's key, with all
// its records. Later ones are dropped and counted as late. The default is 0.
func (w *Windowed[K, T]) WithLateness(d time.Duration) *Windowed[K, T] {
	w.lateness = d
	return w
}

// InProcessingTime files records by the time they arrive instead of their timestamps. At the end of input all windows fire.
func (w *Windowed[K, T]) InProcessingTime() *Windowed[K, T] {
	w.processingTime = true
	return w
}

// FailOnMissingTimestamps fails the task at a record without a timestamp. By default such records are skipped and counted.
func (w *Windowed[K, T]) FailOnMissingTimestamps() *Windowed[K, T] {
	w.failUntimed = true
	return w
}

// Aggregator gathers the records of a key and window in an accumulator of type A, for [Aggregate]. One value serves all keys,
// windows and subtasks, so it has no state of its own.
type Aggregator[K comparable, T, A, R any] interface {
	// Add takes a record into an accumulator, which is the zero value before the first one.
	Add(acc *A, v T)
	// Merge takes what from holds into another accumulator, which is the zero value before the first one. It must neither change
	// from nor keep parts of it, such as maps or slices.
	Merge(into *A, from A)
	// Result makes the result of a window. It must not change acc.
	Result(key K, w window.Span, acc A) R
}

// Aggregate emits for each key and window what agg makes of its records. Without a codec the accumulator is encoded by codec.For.
// Results have the window's last millisecond as their timestamp.
func Aggregate[K comparable, T, A, R any](w *Windowed[K, T], agg Aggregator[K, T, A, R], c ...codec.Codec[A]) *Stream[R] {
	return windowed(w, windowing.Aggregate(agg), func() (codec.Codec[A], error) {
		if len(c) > 0 {
			return c[0], nil
		}
		return codec.For[A]()
	})
}

// Reduce emits for each key and window its records combined by f, which must be associative. f must not modify its arguments.
func Reduce[K comparable, T any](w *Windowed[K, T], f func(a, b T) T) *Stream[T] {
	n := w.keyed.stream.node
	out := windowed(w, windowing.Reduce[K](f), func() (codec.Codec[windowing.Reduced[T]], error) {
		c, err := outputCodec[T](n)
		return windowing.ReducedCodec(c), err
	})
	out.node.outCodec = n.outCodec
	return out
}

// Apply emits for each key and window what f makes of all its records. They are kept until the window ends; [Aggregate] and [Reduce]
// keep only a combination. f must neither modify nor keep values.
func Apply[K comparable, T, R any](w *Windowed[K, T], f func(key K, w window.Span, values []T, emit func(R) error) error) *Stream[R] {
	n := w.keyed.stream.node
	return windowed(w, windowing.Apply(f), func() (codec.Codec[[]T], error) {
		c, err := outputCodec[T](n)
		return windowing.ListCodec(c), err
	})
}

// windowed adds a window operator.
func windowed[K comparable, T, A, R any](w *Windowed[K, T], f windowing.Function[K, T, A, R], accCodec func() (codec.Codec[A], error)) *Stream[R] {
	// A copy: settings changed on w later are meant for later uses.
	spec := *w
	env := spec.keyed.stream.env
	n := env.add(&node{op: graph.Operator{Kind: "window", Stateful: true}, needsWatermarks: !spec.processingTime})
	n.finish = func(*planner) (operator.Factory, graph.Errors) {
		var errs graph.Errors
		if spec.windows == nil {
			return nil, graph.Errors{windowing.ErrWindow}
		}
		if err := spec.windows.Validate(); err != nil {
			errs = append(errs, err)
		}
		if spec.lateness < 0 {
			errs = append(errs, errNegativeLateness)
		}
		kc, err := spec.keyed.keyCodec()
		if err != nil {
			errs = append(errs, err)
		}
		ac, err := accCodec()
		if err != nil {
			errs = append(errs, err)
		}
		if len(errs) > 0 {
			return nil, errs
		}
		n.op.Codecs = []string{kc.ID(), codecID(ac), spec.windows.ID()}
		return windowing.New(windowing.Config[K, T, A, R]{
			Windows: spec.windows, ProcessingTime: spec.processingTime, Lateness: spec.lateness, FailUntimed: spec.failUntimed,
			Key: spec.keyed.key, KeyCodec: kc, AccCodec: ac, Function: f,
		}), nil
	}
	connectKeyed(&spec.keyed, n)
	return &Stream[R]{env: env, node: n}
}
