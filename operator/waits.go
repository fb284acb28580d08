package operator

import (
	"sync"
	"time"
)

// Waits are what an instance waits for outside of its job, such as an answer of a broker. They are for people who ask why nothing
// moves: an instance enters what may take long, never what it does for each record. All methods may be called from any goroutine.
type Waits struct {
	mu   sync.Mutex
	list []*Wait
}

// Wait is one of them.
type Wait struct {
	// What completes "waits for", such as "Kafka at 10.0.0.1:9092 to commit checkpoint 7".
	What  string
	Since time.Time
	// Last is how the last try ended, of what is tried again and again; nil without one.
	Last error
}

// Begin enters a wait; the returned function, which may be called more than once, ends it.
func (w *Waits) Begin(what string) (end func()) {
	_, end = w.BeginTries(what)
	return end
}

// BeginTries is Begin for what is tried again and again: failed notes how a try ended.
func (w *Waits) BeginTries(what string) (failed func(error), end func()) {
	entry := &Wait{What: what, Since: time.Now()}
	w.mu.Lock()
	w.list = append(w.list, entry)
	w.mu.Unlock()
	failed = func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		entry.Last = err
	}
	return failed, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, e := range w.list {
			if e == entry {
				w.list = append(w.list[:i], w.list[i+1:]...)
				return
			}
		}
	}
}

// Current returns the present waits, the longest first.
func (w *Waits) Current() []Wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Wait, len(w.list))
	for i, e := range w.list {
		out[i] = *e
	}
	return out
}

// SplitReporter is implemented by sources that know how far event time is in each split they read. It is called by the task's
// goroutine, about once a second.
type SplitReporter interface {
	Splits() SplitReport
}

// SplitReport tells what holds event time back.
type SplitReport struct {
	// Enabled is false for a source that makes no watermarks.
	Enabled bool
	// IdleTimeout is after how long a silent split is left out; 0 for never.
	IdleTimeout time.Duration
	// Highest is the highest watermark of any split; MinWatermark without one.
	Highest int64
	// Lowest are a few of the splits that are not idle, the lowest watermark first.
	Lowest []SplitProgress
}

// SplitProgress is one split.
type SplitProgress struct {
	Name string
	// Watermark is that of the split alone; MinWatermark before the first record.
	Watermark int64
	// Quiet tells for how long the split is known to hold nothing new; negative when it is not known to.
	Quiet time.Duration
	// Lag is the number of its records that are not read yet; -1 when unknown.
	Lag int64
}
