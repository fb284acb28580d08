package windowing

import (
	"fmt"
	"time"
)

// Daily are the calendar days of a time zone. A day lasts from the first instant of its date to that of the next, so it has 23 or 25
// hours where clocks change.
type Daily struct {
	loc *time.Location
}

var _ Assigner = Daily{}

// NewDaily returns the days of a zone.
func NewDaily(loc *time.Location) Daily { return Daily{loc: loc} }

// ID implements Assigner.
func (d Daily) ID() string {
	if d.loc == nil {
		return "day/"
	}
	return "day/" + d.loc.String()
}

// Validate implements Assigner.
func (d Daily) Validate() error {
	switch d.loc {
	case nil:
		return fmt.Errorf("%w: days need a time zone; load one with time.LoadLocation", ErrWindow)
	case time.Local:
		return fmt.Errorf("%w: time.Local depends on the machine a task runs on; load a zone by name with time.LoadLocation, or use time.UTC", ErrWindow)
	}
	return nil
}

// Pane implements Assigner.
func (d Daily) Pane(t int64) Span {
	y, m, day := time.UnixMilli(t).In(d.loc).Date()
	start, end := d.start(y, m, day), d.start(y, m, day+1)
	// Where clocks are set back across midnight, a date is entered, left and entered again.
	switch {
	case t < start:
		start, end = d.start(y, m, day-1), start
	case t >= end:
		start, end = end, d.start(y, m, day+2)
	}
	return Span{start, end}
}

// First implements Assigner.
func (d Daily) First(pane int64) Span { return d.Pane(pane) }

// Last implements Assigner.
func (d Daily) Last(pane int64) Span { return d.Pane(pane) }

// Next implements Assigner.
func (d Daily) Next(w Span) Span { return d.Pane(w.End) }

// start returns the first instant of a day. Where clocks skip midnight, that is when the skipping happens.
func (d Daily) start(y int, m time.Month, day int) int64 {
	midnight := time.Date(y, m, day, 0, 0, 0, 0, d.loc)
	noon := time.Date(y, m, day, 12, 0, 0, 0, d.loc)
	if midnight.Day() == noon.Day() && midnight.Hour() == 0 {
		return midnight.UnixMilli()
	}
	if midnight.Day() == noon.Day() {
		// time.Date went forward over the gap: the day begins where this zone offset does.
		begin, _ := midnight.ZoneBounds()
		return begin.UnixMilli()
	}
	_, end := midnight.ZoneBounds()
	return end.UnixMilli()
}
