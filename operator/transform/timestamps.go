package transform

import (
	"context"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/internal/keyed"
	"github.com/weir-stream/weir/operator/watermark"
)

// AssignTimestamps returns the operator that gives each record the timestamp that at returns, in milliseconds since the epoch, and
// makes watermarks of them. Watermarks from upstream are dropped, but for the end of input.
//
// An instance is idle while its input is, never by elapsed time: the task tells it through [operator.IdleListener].
func AssignTimestamps[T any](at func(v T, timestamp int64) int64, s watermark.Strategy) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[T](outs)
		return &assigner[T]{at: at, strategy: s, out: out, largest: watermark.None, floor: operator.MinWatermark}, err
	})
}

type assigner[T any] struct {
	operator.Base
	at       func(v T, timestamp int64) int64
	strategy watermark.Strategy
	out      operator.Collector[T]
	uid      string
	largest  int64
	floor    int64 // the highest watermark given out
	idle     bool
}

var (
	_ operator.WatermarkSource = (*assigner[int])(nil)
	_ operator.IdleListener    = (*assigner[int])(nil)
)

// Input implements operator.Instance.
func (a *assigner[T]) Input() any { return operator.Collector[T](a) }

// Open implements operator.Instance.
func (a *assigner[T]) Open(_ context.Context, rt *operator.Runtime) error {
	a.uid = rt.Operator.UID
	a.floor = keyed.Watermark(rt.Restored)
	return nil
}

// Collect implements operator.Collector.
func (a *assigner[T]) Collect(v T, timestamp int64) error {
	timestamp = a.at(v, timestamp)
	a.largest = max(a.largest, timestamp)
	return a.out.Collect(v, timestamp)
}

// Watermark implements operator.Instance.
func (a *assigner[T]) Watermark(wm int64) (int64, error) {
	if wm == operator.MaxWatermark {
		a.floor = wm
	}
	return a.floor, nil
}

// CurrentWatermark implements operator.WatermarkSource.
func (a *assigner[T]) CurrentWatermark(time.Time) (int64, bool) {
	a.floor = max(a.floor, a.strategy.After(a.largest))
	return a.floor, a.idle
}

// InputIdle implements operator.IdleListener.
func (a *assigner[T]) InputIdle(idle bool) { a.idle = idle }

// Snapshot implements operator.Instance.
func (a *assigner[T]) Snapshot(context.Context, operator.Barrier) (operator.Finish, error) {
	s := keyed.Snapshot(a.uid, a.floor)
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) { return s, nil }, nil
}
