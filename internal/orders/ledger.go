package orders

import "time"

// Ledger compares what a read_committed reader sees with what is right. It is pure.
type Ledger struct {
	expected map[Pane]Total
	seen     map[Pane]int
	wrong    map[Pane]Total

	// Duplicated counts results that were seen more than once.
	Duplicated int
	// Committed counts the orders in the results seen.
	Committed uint64
	// LastOutput is when the last result was read.
	LastOutput time.Time
}

// NewLedger returns a ledger that expects what Stream.Expected returned.
func NewLedger(expected map[Pane]Total) *Ledger {
	return &Ledger{expected: expected, seen: make(map[Pane]int), wrong: make(map[Pane]Total)}
}

// Add takes one committed result that was read at time now.
func (l *Ledger) Add(t Total, now time.Time) {
	l.LastOutput = now
	k := Pane{t.User, t.Start}
	l.seen[k]++
	if l.seen[k] > 1 {
		l.Duplicated++
		return
	}
	l.Committed += uint64(max(t.Count, 0))
	if l.expected[k] != t {
		l.wrong[k] = t
	}
}

// Missing returns the number of results not seen yet.
func (l *Ledger) Missing() int {
	n := 0
	for k := range l.expected {
		if l.seen[k] == 0 {
			n++
		}
	}
	return n
}

// Complete reports whether every expected result has been seen.
func (l *Ledger) Complete() bool { return len(l.seen) >= len(l.expected) && l.Missing() == 0 }

// Results returns the number of results expected.
func (l *Ledger) Results() int { return len(l.expected) }

// Wrong returns the results that differ from the right answer.
func (l *Ledger) Wrong() map[Pane]Total { return l.wrong }

// MissingPanes returns the first few results not seen, for people.
func (l *Ledger) MissingPanes(limit int) []Pane {
	var out []Pane
	for k := range l.expected {
		if l.seen[k] == 0 && len(out) < limit {
			out = append(out, k)
		}
	}
	return out
}
