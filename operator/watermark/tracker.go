package watermark

import "time"

// Tracker combines the watermarks of the splits of one source subtask. It is not safe for concurrent use.
//
// The combined watermark is the lowest of the splits that are not idle, and never goes back. With all splits idle it rises to the
// highest of them and stays there, so a window beyond it closes with the next record or with the end of input. Without any split
// there is nothing to contribute: the subtask counts as idle.
type Tracker struct {
	strategy Strategy
	splits   []split
	free     []int
	byKey    map[string]int
	restored map[string]int64
	out      int64
}

// split is the state of one split. While quiet, nothing has come since it was first known to be empty, at quietFrom; quietTo is when
// that was last looked at.
type split struct {
	key                string
	used               bool
	quiet              bool
	largest            int64
	quietFrom, quietTo time.Time
}

// NewTracker returns a tracker without splits. floor is a watermark that was given out before, None without one; restored holds the
// largest timestamps by split key that a snapshot knew.
func NewTracker(s Strategy, floor int64, restored map[string]int64) *Tracker {
	return &Tracker{strategy: s, byKey: make(map[string]int), restored: restored, out: floor}
}

// Split returns the number of the split with the given key, adding it when it is new.
func (t *Tracker) Split(key string) int {
	if n, ok := t.byKey[key]; ok {
		return n
	}
	s := split{key: key, used: true, largest: None}
	if largest, ok := t.restored[key]; ok {
		s.largest = largest
	}
	n := len(t.splits)
	if last := len(t.free) - 1; last >= 0 {
		n, t.free = t.free[last], t.free[:last]
		t.splits[n] = s
	} else {
		t.splits = append(t.splits, s)
	}
	t.byKey[key] = n
	return n
}

// Remove forgets a split.
func (t *Tracker) Remove(n int) {
	if n < 0 || n >= len(t.splits) || !t.splits[n].used {
		return
	}
	delete(t.byKey, t.splits[n].key)
	t.splits[n] = split{}
	t.free = append(t.free, n)
}

// Record tells that a record with the given timestamp came from a split; None for one without a timestamp.
func (t *Tracker) Record(n int, timestamp int64) {
	s := &t.splits[n]
	s.largest = max(s.largest, timestamp)
	s.quiet = false
}

// CaughtUp tells that at time asOf everything that existed in the split had been emitted. Only the time between calls counts, so asOf
// should hold a monotonic reading, as what time.Now returns does.
func (t *Tracker) CaughtUp(n int, asOf time.Time) {
	s := &t.splits[n]
	if !s.quiet {
		s.quiet, s.quietFrom, s.quietTo = true, asOf, asOf
	}
	if asOf.After(s.quietTo) {
		s.quietTo = asOf
	}
}

// Current returns the combined watermark and whether there is nothing to contribute.
func (t *Tracker) Current() (wm int64, idle bool) {
	var lowest, highest int64 = maxTime, None
	active := 0
	for i := range t.splits {
		s := &t.splits[i]
		if !s.used {
			continue
		}
		highest = max(highest, t.strategy.After(s.largest))
		if t.idle(s) {
			continue
		}
		active++
		lowest = min(lowest, t.strategy.After(s.largest))
	}
	if active == 0 {
		t.out = max(t.out, highest)
		return t.out, true
	}
	t.out = max(t.out, lowest)
	return t.out, false
}

const maxTime = 1<<63 - 1

func (t *Tracker) idle(s *split) bool {
	timeout := t.strategy.idle
	return timeout > 0 && s.quiet && s.quietTo.Sub(s.quietFrom) >= timeout
}

// Split is how far one split is.
type Split struct {
	Key string
	// Watermark is that of the split alone; None before its first record.
	Watermark int64
	// Idle tells that it is left out of the combined watermark.
	Idle bool
	// Quiet is for how long it is known to hold nothing new; negative when it is not known to.
	Quiet time.Duration
}

// Splits calls f with each split, in no particular order.
func (t *Tracker) Splits(f func(Split)) {
	for i := range t.splits {
		s := &t.splits[i]
		if !s.used {
			continue
		}
		quiet := time.Duration(-1)
		if s.quiet {
			quiet = s.quietTo.Sub(s.quietFrom)
		}
		f(Split{Key: s.key, Watermark: t.strategy.After(s.largest), Idle: t.idle(s), Quiet: quiet})
	}
}

// Strategy returns the tracker's strategy.
func (t *Tracker) Strategy() Strategy { return t.strategy }

// Largest calls f with the largest timestamp of each split that has one, in no particular order. Splits of the restored snapshot
// that were never added are left out: they belong to another subtask.
func (t *Tracker) Largest(f func(key string, largest int64)) {
	for key, n := range t.byKey {
		if largest := t.splits[n].largest; largest != None {
			f(key, largest)
		}
	}
}
