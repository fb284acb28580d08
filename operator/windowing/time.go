package windowing

import (
	"errors"
	"fmt"
	"math"

	"github.com/weir-stream/weir/operator"
)

// ErrUntimed is returned for a record without a timestamp where the job does not skip them.
var ErrUntimed = errors.New("record without a timestamp")

// eventTime is an instance whose records are filed by timestamp and whose windows fire by watermark.
type eventTime[K comparable, T, A, R any] struct{ *instance[K, T, A, R] }

// Input implements operator.Instance.
func (w *eventTime[K, T, A, R]) Input() any { return operator.Collector[T](w) }

// Collect implements operator.Collector.
func (w *eventTime[K, T, A, R]) Collect(v T, timestamp int64) error {
	if timestamp < minTimestamp || timestamp > maxTimestamp {
		return w.untimed(timestamp)
	}
	return w.add(v, timestamp)
}

func (w *instance[K, T, A, R]) untimed(timestamp int64) error {
	if !w.cfg.FailUntimed {
		w.rt.Stats.Skipped.Add(1)
		return nil
	}
	if timestamp == operator.NoTimestamp {
		return fmt.Errorf("window %q: %w; assign timestamps with WithWatermarks, or let the window skip such records", w.rt.Operator.Name, ErrUntimed)
	}
	return fmt.Errorf("window %q: %w: %d ms is out of bounds", w.rt.Operator.Name, ErrUntimed, timestamp)
}

// Watermark implements operator.Instance.
func (w *eventTime[K, T, A, R]) Watermark(wm int64) (int64, error) {
	if wm <= w.watermark {
		return w.watermark, nil
	}
	w.watermark = wm
	return wm, w.advance(wm)
}

// processingTime is an instance whose records are filed by the time they arrive and whose windows fire by the clock.
type processingTime[K comparable, T, A, R any] struct{ *instance[K, T, A, R] }

// Input implements operator.Instance.
func (w *processingTime[K, T, A, R]) Input() any { return operator.Collector[T](w) }

// Collect implements operator.Collector. A clock that is set back does not reopen a window.
func (w *processingTime[K, T, A, R]) Collect(v T, _ int64) error {
	now := w.rt.Clock.Now().UnixMilli()
	if reached := max(w.trigger.now, w.fired.most); now <= reached {
		now = reached + 1
	}
	return w.add(v, now)
}

// Watermark implements operator.Instance. At the end of input no clock is waited for.
func (w *processingTime[K, T, A, R]) Watermark(wm int64) (int64, error) {
	if wm <= w.watermark {
		return w.watermark, nil
	}
	w.watermark = wm
	if wm == operator.MaxWatermark && w.next != math.MaxInt64 {
		before := w.trigger.now
		if err := w.advance(math.MaxInt64); err != nil {
			return 0, err
		}
		w.trigger.now = before
	}
	return wm, nil
}

// NextTimer implements operator.TimerOwner.
func (w *processingTime[K, T, A, R]) NextTimer() (int64, bool) {
	if w.next == math.MaxInt64 {
		return 0, false
	}
	return w.next + 1, true
}

// OnProcessingTime implements operator.TimerOwner.
func (w *processingTime[K, T, A, R]) OnProcessingTime(now int64) error {
	if now-1 <= w.trigger.now {
		return nil
	}
	return w.advance(now - 1)
}
