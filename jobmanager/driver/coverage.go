package driver

import (
	"sync"
	"time"
)

// quietStart is how long an attempt runs without a change before what was before it counts as nothing to wait for: what is read again after
// a restart is a change.
const quietStart = 10 * time.Second

// coverage tells for how long a job has had something that no completed checkpoint covers. An idle job has nothing. It may be used from any
// goroutine.
type coverage struct {
	mu      sync.Mutex
	changes []change  // of the running attempt and not covered, ascending
	before  time.Time // since when there may be something from before the attempt; zero for nothing
	running time.Time // since when the attempt runs; zero while none does
}

// change is the first one after the snapshot of a checkpoint.
type change struct {
	after uint64
	at    time.Time
}

// newCoverage is that of a job of which this leader knows nothing yet.
func newCoverage(now time.Time) *coverage { return &coverage{before: now} }

func (c *coverage) started(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = now
}

// changed tells of the first change after the snapshot of a checkpoint. Several workers may tell of it.
func (c *coverage) changed(after uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.changes); n == 0 || c.changes[n-1].after < after {
		c.changes = append(c.changes, change{after, now})
	}
}

// completed tells that a checkpoint covers all changes before its snapshot.
func (c *coverage) completed(checkpoint uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = time.Time{}
	for len(c.changes) > 0 && c.changes[0].after < checkpoint {
		c.changes = c.changes[1:]
	}
}

// ended tells that no attempt runs: what comes in from now on waits, too.
func (c *coverage) ended(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.oldest(now); !at.IsZero() {
		now = at
	}
	c.before, c.running, c.changes = now, time.Time{}, nil
}

// uncovered is the age of the oldest change that no completed checkpoint covers; 0 for none.
func (c *coverage) uncovered(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.oldest(now); !at.IsZero() {
		return max(0, now.Sub(at))
	}
	return 0
}

func (c *coverage) oldest(now time.Time) time.Time {
	quiet := len(c.changes) == 0 && !c.running.IsZero() && now.Sub(c.running) >= quietStart
	switch {
	case !c.before.IsZero() && !quiet:
		return c.before
	case len(c.changes) > 0:
		return c.changes[0].at
	}
	return time.Time{}
}
