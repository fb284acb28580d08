package windowing

import (
	"context"
	"math"
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/internal/keyed"
	"github.com/weir-stream/weir/statebackend"
)

// Function gathers the records of one key and window. One value is used by all subtasks and windows.
type Function[K comparable, T, A, R any] interface {
	// Add takes a record into an accumulator, which is the zero value before the first one.
	Add(acc *A, v T)
	// Merge takes what from holds into another accumulator, which is the zero value before the first one. It must neither change
	// from nor keep parts of it that a later Add or Merge would change.
	Merge(into *A, from A)
	// Emit emits the results of a window. It must not change acc.
	Emit(key K, w Span, acc A, emit func(R) error) error
}

// Config describes a window operator.
type Config[K comparable, T, A, R any] struct {
	Windows Assigner
	// ProcessingTime gathers records by the time they arrive instead of by their timestamps.
	ProcessingTime bool
	// Lateness is how long a window is kept after it fired; 0 to drop it at once. It has no meaning in processing time.
	Lateness time.Duration
	// FailUntimed fails the task at a record without a timestamp; else such records are skipped and counted.
	FailUntimed bool
	Key         func(T) K
	KeyCodec    codec.Key[K]
	AccCodec    codec.Codec[A]
	Function    Function[K, T, A, R]
}

// stateName is the name of the state. Panes of other windows cannot be used, so it is that of the windows.
func stateName(a Assigner) string { return a.ID() }

// formerStateName is the one that older versions gave it.
func formerStateName(a Assigner) string { return "panes " + a.ID() }

// New returns the operator.
func New[K comparable, T, A, R any](cfg Config[K, T, A, R]) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[R](outs)
		w := &instance[K, T, A, R]{cfg: cfg, out: out}
		w.emit = func(r R) error { return w.out.Collect(r, w.emitAt) }
		if cfg.ProcessingTime {
			return &processingTime[K, T, A, R]{w}, err
		}
		return &eventTime[K, T, A, R]{w}, err
	})
}

// instance is one subtask.
type instance[K comparable, T, A, R any] struct {
	cfg     Config[K, T, A, R]
	rt      *operator.Runtime
	out     operator.Collector[R]
	backend *statebackend.Backend[K]
	brake   keyed.Brake
	panes   *statebackend.Panes[K, A]

	trigger   trigger
	watermark int64 // event time; in processing time only passed on
	next      int64 // when the trigger has something to do next
	pane      Span  // of the last record, with its verdict as of now
	verdict   verdict
	fresh     bool   // pane and verdict are up to date
	fired     fired  // as restored; in processing time only
	scratch   []byte // a key's encoding
	keys      []K    // of records to come

	emit   func(R) error
	emitAt int64
}

var (
	_ operator.CheckpointListener = (*eventTime[int, int, int, int])(nil)
	_ operator.TimerOwner         = (*processingTime[int, int, int, int])(nil)
)

// Open implements operator.Instance.
func (w *instance[K, T, A, R]) Open(ctx context.Context, rt *operator.Runtime) error {
	w.rt = rt
	w.watermark = keyed.Watermark(rt.Restored)
	w.trigger = trigger{windows: w.cfg.Windows, lateness: w.cfg.Lateness.Milliseconds(), now: w.watermark}
	if w.cfg.ProcessingTime {
		var err error
		if w.fired, err = restoreFired(rt.Restored, rt.KeyGroups); err != nil {
			return operator.Fatal(err)
		}
		w.trigger.lateness, w.trigger.now = 0, w.fired.least
	}
	w.backend = statebackend.New(keyed.Config(rt), w.cfg.KeyCodec)
	w.panes = statebackend.NewPanes(w.backend, stateName(w.cfg.Windows), w.cfg.AccCodec, formerStateName(w.cfg.Windows))
	if err := w.backend.Open(ctx); err != nil {
		return err
	}
	w.next = math.MaxInt64
	for _, pane := range w.panes.All() {
		w.next = min(w.next, w.trigger.judge(pane).next)
	}
	return nil
}

// Expect implements operator.Expecter.
func (w *instance[K, T, A, R]) Expect(vs []T) {
	w.keys = keyed.Expect(w.backend, w.keys, vs, w.cfg.Key)
}

// add takes a record that belongs to time t.
func (w *instance[K, T, A, R]) add(v T, t int64) error {
	if !w.fresh || !w.pane.Contains(t) {
		w.pane = w.cfg.Windows.Pane(t)
		w.verdict = w.trigger.judge(w.pane.Start)
		w.fresh = true
	}
	if w.verdict.late {
		w.rt.Stats.Late.Add(1)
		return nil
	}
	if w.backend.Over() {
		w.brake.Press(w.rt, w.backend.Pressure())
	}
	w.next = min(w.next, w.verdict.next)
	key := w.cfg.Key(v)
	acc, _, err := w.panes.Acquire(w.pane.Start, key)
	if err != nil {
		return err
	}
	w.cfg.Function.Add(acc, v)
	if w.verdict.refire {
		return w.refire(key)
	}
	return nil
}

// refire emits again, for one key, the windows of the current pane that have fired.
func (w *instance[K, T, A, R]) refire(key K) error {
	return w.trigger.fired(w.pane.Start, func(s Span) error {
		var merged A
		for _, pane := range w.panes.All() {
			if !s.Contains(pane) {
				continue
			}
			acc, ok, err := w.panes.Get(pane, key)
			if err != nil {
				return err
			}
			if ok {
				w.cfg.Function.Merge(&merged, acc)
			}
		}
		return w.result(key, s, merged)
	})
}

// advance moves the trigger's time.
func (w *instance[K, T, A, R]) advance(now int64) error {
	w.fresh = false
	if now < w.next {
		w.trigger.now = now
		return nil
	}
	var err error
	w.next, err = w.trigger.advance(now, w.panes.All(), w.fire, w.panes.Drop)
	return err
}

// fire emits the results of a window for every key in its panes.
func (w *instance[K, T, A, R]) fire(s Span, panes []int64) error {
	if len(panes) == 1 {
		return w.panes.Each(panes[0], func(key K, acc A) error { return w.result(key, s, acc) })
	}
	merged := make(map[K]*A)
	for _, pane := range panes {
		err := w.panes.Each(pane, func(key K, acc A) error {
			into, ok := merged[key]
			if !ok {
				into = new(A)
				merged[key] = into
			}
			w.cfg.Function.Merge(into, acc)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for key, acc := range merged {
		if err := w.result(key, s, *acc); err != nil {
			return err
		}
	}
	return nil
}

func (w *instance[K, T, A, R]) result(key K, s Span, acc A) error {
	if w.cfg.ProcessingTime && s.Last() <= w.fired.most && s.Last() <= w.fired.until(w.groupOf(key)) {
		return nil // by a former subtask that had come further than others
	}
	w.emitAt = s.Last()
	return w.cfg.Function.Emit(key, s, acc, w.emit)
}

func (w *instance[K, T, A, R]) groupOf(key K) int {
	w.scratch = w.cfg.KeyCodec.Append(w.scratch[:0], key)
	return keygroup.Of(w.scratch, w.rt.MaxParallelism)
}

// Snapshot implements operator.Instance.
func (w *instance[K, T, A, R]) Snapshot(_ context.Context, b operator.Barrier) (operator.Finish, error) {
	w.rt.Stats.StateBytes.Store(w.backend.Bytes())
	s := keyed.Snapshot(w.rt.Operator.UID, w.watermark)
	if w.cfg.ProcessingTime {
		s.OperatorStates = saveFired(w.trigger.now)
	}
	return keyed.Finish(s, w.backend.Freeze(b.Checkpoint, b.Full)), nil
}

// CheckpointCompleted implements operator.CheckpointListener.
func (w *instance[K, T, A, R]) CheckpointCompleted(n uint64) error {
	w.backend.CheckpointCompleted(n)
	if !w.backend.Over() {
		w.brake.Release()
	}
	return nil
}

// EndInput implements operator.Instance: the last watermark has fired everything.
func (w *instance[K, T, A, R]) EndInput() error { return nil }

// Close implements operator.Instance.
func (w *instance[K, T, A, R]) Close() error {
	if w.backend == nil {
		return nil
	}
	return w.backend.Close()
}
