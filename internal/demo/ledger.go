package demo

import "time"

// ledger compares what a read_committed reader sees with what is right. It is pure.
type ledger struct {
	expected map[pane]Total
	seen     map[pane]int
	wrong    map[pane]Total

	duplicated int
	committed  uint64 // orders counted in the results seen
	lastOutput time.Time
}

func newLedger(expected map[pane]Total) *ledger {
	return &ledger{expected: expected, seen: make(map[pane]int), wrong: make(map[pane]Total)}
}

// add takes one committed result that was read at time now.
func (l *ledger) add(t Total, now time.Time) {
	l.lastOutput = now
	k := pane{t.User, t.Start}
	l.seen[k]++
	if l.seen[k] > 1 {
		l.duplicated++
		return
	}
	l.committed += uint64(max(t.Count, 0))
	if l.expected[k] != t {
		l.wrong[k] = t
	}
}

// missing returns the number of results not seen yet.
func (l *ledger) missing() int {
	n := 0
	for k := range l.expected {
		if l.seen[k] == 0 {
			n++
		}
	}
	return n
}

// complete reports whether every expected result has been seen.
func (l *ledger) complete() bool { return len(l.seen) >= len(l.expected) && l.missing() == 0 }
