package exchange

import "time"

const (
	// queueTime is how much of the consumer's work may be on its way: the longest that a barrier stands behind records.
	queueTime = 200 * time.Millisecond
	// floorTime is how much of the consumer's work may be on its way at least, within the lower bound: enough to fill a network with
	// some delay, until the rate that comes of it is known.
	floorTime = 500 * time.Millisecond
	// measureEvery is the shortest time over which the consumer's rate is measured.
	measureEvery = 20 * time.Millisecond
)

// window bounds what is on its way on a channel, in some unit: at most what the consumer works off in queueTime, or lowest if it works
// that off in floorTime, but always one batch. It is pure: the caller brings the time.
type window struct {
	lowest, highest int
	limit           int
	outstanding     int

	// consumed counts what was worked off since the time since, during which something was always on its way: begun in the beginning.
	consumed, begun int
	since           time.Time
	// rate is the smoothed consumption in units per second.
	rate float64
}

func newWindow(lowest, highest int) window {
	return window{lowest: lowest, highest: highest, limit: lowest}
}

// fits reports whether a batch of the given size may be sent.
func (w *window) fits(size int) bool { return w.outstanding == 0 || w.outstanding+size <= w.limit }

// send counts a batch that was sent.
func (w *window) send(size int, now time.Time) {
	if w.outstanding == 0 {
		w.since, w.consumed = now, 0
	}
	w.outstanding += size
}

// done counts what the consumer has worked off.
func (w *window) done(size int, now time.Time) {
	if w.consumed == 0 {
		w.begun = w.outstanding
	}
	w.outstanding -= size
	w.consumed += size
	elapsed := now.Sub(w.since)
	// What was on its way in the beginning is seen through: over a network with some delay it comes back in bursts.
	if elapsed < measureEvery || w.consumed < w.begun && elapsed < floorTime {
		return
	}
	rate := float64(w.consumed) / elapsed.Seconds()
	switch {
	case w.rate == 0:
		w.rate = rate
	case rate > w.rate:
		w.rate += (rate - w.rate) / 2
	default:
		// Slower down than up, unless it took long: a channel that was blocked for an alignment did not become slow.
		w.rate += (rate - w.rate) * min(max(0.25, elapsed.Seconds()/floorTime.Seconds()), 1)
	}
	floor := min(float64(w.lowest), w.rate*floorTime.Seconds())
	w.limit = int(max(1, floor, min(w.rate*queueTime.Seconds(), float64(w.highest))))
	w.since, w.consumed = now, 0
}

// batch returns how much one batch should be, so that the next one is filled while the consumer works it off.
func (w *window) batch() int { return max(1, w.limit/2) }
