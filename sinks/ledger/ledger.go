// Package ledger is the pure core of the two-phase-commit driver: it decides what a snapshot lists, what a completed checkpoint commits
// and in which order, and when a transaction's identity is free. It does no I/O and knows no clock.
package ledger

import (
	"fmt"
	"slices"
)

// The life of a prepared transaction in the ledger.
type state uint8

const (
	prepared   state = iota + 1 // flushed; waits for a completed checkpoint that covers it
	committing                  // its commit is under way
	committed                   // visible, but the last completed checkpoint may still list it
	failed                      // its commit ended with an error; the attempt is about to end
)

// Entry is one prepared transaction.
type Entry[C any] struct {
	// Checkpoint is the one at whose barrier it was prepared.
	Checkpoint uint64
	// Committable is what commits it.
	Committable C

	listed uint64 // newest checkpoint whose snapshot lists it
	state  state
}

// Ledger knows every prepared transaction of one sink subtask in one attempt. The zero value is an empty ledger. It is not safe for
// concurrent use.
//
// Invariants: entries are ordered by checkpoint; at most one is committing; an entry is in every snapshot from the barrier that
// prepared it until its commit is confirmed; it leaves the ledger only when a completed checkpoint does not list it. After a failure
// that stops, nothing more is committed.
type Ledger[C any] struct {
	entries   []*Entry[C]
	barrier   uint64 // newest barrier
	completed uint64 // newest completed checkpoint
	stopped   bool
}

// Prepare records the transaction flushed at barrier n.
func (l *Ledger[C]) Prepare(n uint64, c C) error {
	if n <= l.barrier {
		return fmt.Errorf("barrier %d follows barrier %d", n, l.barrier)
	}
	l.entries = append(l.entries, &Entry[C]{Checkpoint: n, Committable: c, listed: n, state: prepared})
	return nil
}

// Snapshot returns what the snapshot of barrier n lists, oldest first.
func (l *Ledger[C]) Snapshot(n uint64) ([]Entry[C], error) {
	if n <= l.barrier {
		return nil, fmt.Errorf("barrier %d follows barrier %d", n, l.barrier)
	}
	l.barrier = n
	var out []Entry[C]
	for _, e := range l.entries {
		if e.state != committed {
			e.listed = n
			out = append(out, *e)
		}
	}
	return out, nil
}

// Complete notes that checkpoint n is complete and returns the transactions it frees. A late or repeated notice changes nothing.
func (l *Ledger[C]) Complete(n uint64) (freed []C) {
	l.completed = max(l.completed, n)
	return l.release()
}

// Next returns the transaction to commit now, the oldest that a completed checkpoint covers, or nil. One that failed is passed over.
func (l *Ledger[C]) Next() *Entry[C] {
	if l.stopped {
		return nil
	}
	for _, e := range l.entries {
		switch {
		case e.Checkpoint > l.completed || e.state == committing:
			return nil
		case e.state == prepared:
			e.state = committing
			return e
		}
	}
	return nil
}

// Committed notes that e is visible and returns the transactions that this frees.
func (l *Ledger[C]) Committed(e *Entry[C]) (freed []C) {
	e.state = committed
	return l.release()
}

// Failed notes that the commit of e ended with an error. With stop nothing more is committed: what a restore brings of e would land behind
// it.
func (l *Ledger[C]) Failed(e *Entry[C], stop bool) {
	e.state = failed
	l.stopped = l.stopped || stop
}

// Settled reports whether every transaction that checkpoint n covers is committed.
func (l *Ledger[C]) Settled(n uint64) bool {
	return !slices.ContainsFunc(l.entries, func(e *Entry[C]) bool { return e.Checkpoint <= n && e.state != committed })
}

// Entries returns every transaction that the ledger knows, oldest first, to look at.
func (l *Ledger[C]) Entries() []Entry[C] {
	out := make([]Entry[C], len(l.entries))
	for i, e := range l.entries {
		out[i] = *e
	}
	return out
}

// Completed is the newest checkpoint known to be complete.
func (l *Ledger[C]) Completed() uint64 { return l.completed }

// Listed reports whether the last completed checkpoint lists the transaction.
func (l *Ledger[C]) Listed(e Entry[C]) bool {
	return e.Checkpoint <= l.completed && e.listed >= l.completed
}

func (l *Ledger[C]) release() (freed []C) {
	l.entries = slices.DeleteFunc(l.entries, func(e *Entry[C]) bool {
		free := e.state == committed && e.listed < l.completed
		if free {
			freed = append(freed, e.Committable)
		}
		return free
	})
	return freed
}
