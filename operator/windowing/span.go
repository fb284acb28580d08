package windowing

import (
	"fmt"
	"time"
)

// Span is a stretch of time, in milliseconds since the epoch: Start is in it, End is not.
type Span struct {
	Start, End int64
}

// Contains reports whether a point in time lies in the span.
func (s Span) Contains(t int64) bool { return t >= s.Start && t < s.End }

// Last returns the last millisecond of the span.
func (s Span) Last() int64 { return s.End - 1 }

// StartTime returns the start of the span in UTC.
func (s Span) StartTime() time.Time { return time.UnixMilli(s.Start).UTC() }

// EndTime returns the end of the span in UTC; it is the first instant that is not in the span.
func (s Span) EndTime() time.Time { return time.UnixMilli(s.End).UTC() }

// String returns the span in RFC 3339.
func (s Span) String() string {
	return fmt.Sprintf("[%s, %s)", s.StartTime().Format(time.RFC3339Nano), s.EndTime().Format(time.RFC3339Nano))
}

// Assigner cuts time into panes and windows. Implementations are pure values.
type Assigner interface {
	// ID describes the assigner; it is part of the job's fingerprint.
	ID() string
	// Validate reports what is wrong with the assigner.
	Validate() error
	// Pane returns the pane that holds a point in time. Panes are consecutive.
	Pane(t int64) Span
	// First and Last return the first and last window that hold the pane beginning at the given time.
	First(pane int64) Span
	Last(pane int64) Span
	// Next returns the window after w, in order of start.
	Next(w Span) Span
}

// Timestamps of records must lie within these bounds, hundreds of thousands of years, so that no sum overflows.
const (
	minTimestamp int64 = -1 << 53
	maxTimestamp int64 = 1 << 53
)
