package process

import (
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
)

// Setup declares the states of one instance and returns the functions that handle its records and timers.
type Setup[K comparable, T, R any] func(s *States[K]) Handler[K, T, R]

// Handler holds the functions of one instance. An error fails the task.
type Handler[K comparable, T, R any] struct {
	// Record handles a record.
	Record func(c *Context[K, R], v T) error
	// EventTimer handles a timer in event time, set for at; nil when none is ever set.
	EventTimer func(c *Context[K, R], at time.Time) error
	// ProcessingTimer handles a timer in processing time, set for at; nil when none is ever set.
	ProcessingTimer func(c *Context[K, R], at time.Time) error
}

// Context is what is known of the record or timer being handled, and takes its results. It is valid during the call only.
type Context[K comparable, R any] struct {
	key       K
	timestamp int64
	watermark int64
	clock     operator.Clock
	out       operator.Collector[R]
	event     *statebackend.Timers[K]
	process   *statebackend.Timers[K]
}

// Key returns the key of the record or timer.
func (c *Context[K, R]) Key() K { return c.key }

// Timestamp returns the event time of the record, or the time that an event timer was set for; ok is false for a record without one
// and for a timer in processing time.
func (c *Context[K, R]) Timestamp() (at time.Time, ok bool) {
	return time.UnixMilli(c.timestamp).UTC(), c.timestamp != operator.NoTimestamp
}

// Watermark returns how far event time has come; ok is false before the first watermark. It is the largest time there is when the
// input has ended.
func (c *Context[K, R]) Watermark() (at time.Time, ok bool) {
	return time.UnixMilli(c.watermark).UTC(), c.watermark != operator.MinWatermark
}

// Now returns the processing time.
func (c *Context[K, R]) Now() time.Time { return c.clock.Now() }

// Emit emits a result with the timestamp of the record or event timer.
func (c *Context[K, R]) Emit(r R) error { return c.out.Collect(r, c.timestamp) }

// EmitAt emits a result with another timestamp.
func (c *Context[K, R]) EmitAt(r R, at time.Time) error { return c.out.Collect(r, at.UnixMilli()) }

// SetEventTimer sets a timer of the current key that fires when event time has reached at, in whole milliseconds. Setting it again
// changes nothing. At the end of input all timers in event time fire.
func (c *Context[K, R]) SetEventTimer(at time.Time) error { return c.event.Add(at.UnixMilli(), c.key) }

// DeleteEventTimer removes a timer of the current key if it is set.
func (c *Context[K, R]) DeleteEventTimer(at time.Time) error {
	return c.event.Delete(at.UnixMilli(), c.key)
}

// SetProcessingTimer sets a timer of the current key that fires when the clock has reached at, in whole milliseconds. Setting it
// again changes nothing. Timers in processing time that are still set at the end of input do not fire.
func (c *Context[K, R]) SetProcessingTimer(at time.Time) error {
	return c.process.Add(at.UnixMilli(), c.key)
}

// DeleteProcessingTimer removes a timer of the current key if it is set.
func (c *Context[K, R]) DeleteProcessingTimer(at time.Time) error {
	return c.process.Delete(at.UnixMilli(), c.key)
}
