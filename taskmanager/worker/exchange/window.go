package exchange

import "time"

const (
	// queueTime is how much of the consumer's work may be on its way: the longest that a barrier stands behind records.
	queueTime = 200 * time.Millisecond
	// measureEvery is the shortest time over which the consumer's rate is measured.
	measureEvery = 20 * time.Millisecond
)

// window bounds what is on its way on a channel, in some unit: at most what the consumer works off in queueTime, but always one
// batch. It is pure: the caller brings the time.
type window struct {
	lowest, highest int
	limit           int
	outstanding     int

	// consumed counts what was worked off since the time since, during which something was always outstanding.
	consumed int
	since    time.Time
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
	w.outstanding -= size
	w.consumed += size
	elapsed := now.Sub(w.since)
	if elapsed < measureEvery {
		return
	}
	rate := float64(w.consumed) / elapsed.Seconds()
	switch {
	case w.rate == 0:
		w.rate = rate
	case rate > w.rate:
		w.rate += (rate - w.rate) / 2
	default:
		// Slower down than up: a channel that was blocked for an alignment did not become slow.
		w.rate += (rate - w.rate) / 4
	}
	w.limit = max(w.lowest, int(min(w.rate*queueTime.Seconds(), float64(w.highest))))
	w.since, w.consumed = now, 0
}
