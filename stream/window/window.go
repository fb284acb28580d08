// Package window names the kinds of windows that a keyed stream can be cut into.
package window

import (
	"time"

	"github.com/weir-stream/weir/operator/windowing"
)

// Windows cuts time into windows.
type Windows = windowing.Assigner

// Fixed are windows of one length.
type Fixed = windowing.Fixed

// Days are the calendar days of a time zone.
type Days = windowing.Daily

// Span is the time from Start, which is in it, to End, which is not, in milliseconds since the epoch.
type Span = windowing.Span

// Tumbling returns consecutive windows of the given size, beginning at multiples of it since the epoch in UTC, or moved by
// [Fixed.WithOffset]. For days of another time zone than UTC use [Daily].
func Tumbling(size time.Duration) Fixed { return windowing.NewFixed(size, size, 0) }

// Sliding returns windows of the given size, of which one begins every slide, so that a record is in size/slide of them. The slide
// must not be longer than the size; one that divides it costs least.
func Sliding(size, slide time.Duration) Fixed { return windowing.NewFixed(size, slide, 0) }

// Daily returns the calendar days of a time zone, which have 23 or 25 hours when its clocks change. Load the zone by name with
// time.LoadLocation; time.Local is refused, since it would depend on the machine that runs the task.
func Daily(loc *time.Location) Days { return windowing.NewDaily(loc) }
