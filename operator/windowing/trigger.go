package windowing

import "math"

// trigger decides which windows fire and which panes end as time advances. Time is the watermark, or the processing time less one
// millisecond. It keeps no list of panes; the caller has that.
type trigger struct {
	windows  Assigner
	lateness int64 // milliseconds
	// now is how far time has come; a window whose last millisecond is now or earlier has fired.
	now int64
}

// verdict is what a record in a pane leads to.
type verdict struct {
	// late: the record belongs to no window that is still kept.
	late bool
	// refire: windows of the pane have fired and are still kept.
	refire bool
	// next is when something of the pane is due next; never before now.
	next int64
}

// judge looks at a pane as of now.
func (t *trigger) judge(pane int64) verdict {
	end := t.over(pane)
	if end <= t.now {
		return verdict{late: true, next: end}
	}
	v := verdict{next: end}
	for w := t.windows.First(pane); w.Start <= pane; w = t.windows.Next(w) {
		if w.Last() > t.now {
			v.next = min(v.next, w.Last())
			break
		}
		v.refire = v.refire || w.Last()+t.lateness > t.now
	}
	return v
}

// over returns the time at which the last window that holds a pane is no longer kept.
func (t *trigger) over(pane int64) int64 { return t.windows.Last(pane).Last() + t.lateness }

// fired calls f for each window of a pane that has fired and is still kept.
func (t *trigger) fired(pane int64, f func(Span) error) error {
	for w := t.windows.First(pane); w.Start <= pane && w.Last() <= t.now; w = t.windows.Next(w) {
		if w.Last()+t.lateness <= t.now {
			continue
		}
		if err := f(w); err != nil {
			return err
		}
	}
	return nil
}

// advance moves time to now. It calls fire for each window with a pane that becomes due, in order, with its panes, then drop for
// each pane that is over. panes are in ascending order. It returns when something is due next.
func (t *trigger) advance(now int64, panes []int64, fire func(w Span, panes []int64) error, drop func(pane int64) error) (next int64, err error) {
	before := t.now
	t.now = now
	done := int64(math.MinInt64) // start of the last window fired
	for i, pane := range panes {
		for w := t.windows.First(pane); w.Start <= pane && w.Last() <= now; w = t.windows.Next(w) {
			if w.Last() <= before || w.Start <= done {
				continue
			}
			done = w.Start
			last := i
			for last < len(panes) && panes[last] < w.End {
				last++
			}
			// pane is the first one of the window: an earlier one would have fired it.
			if err := fire(w, panes[i:last]); err != nil {
				return 0, err
			}
		}
	}
	next = math.MaxInt64
	for _, pane := range panes {
		if t.over(pane) <= now {
			if err := drop(pane); err != nil {
				return 0, err
			}
			continue
		}
		next = min(next, t.judge(pane).next)
	}
	return next, nil
}
