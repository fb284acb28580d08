package sinks

import (
	"fmt"
	"slices"
)

// The life of a prepared transaction in the ledger.
type entryState uint8

const (
	statePrepared   entryState = iota + 1 // flushed; waits for a completed checkpoint that covers it
	stateCommitting                       // its commit is under way
	stateCommitted                        // visible, but the last completed checkpoint may still list it
	stateFailed                           // its commit ended with an error; the attempt is about to end
)

// entry is one prepared transaction.
type entry struct {
	checkpoint uint64 // at whose barrier it was prepared
	listed     uint64 // newest checkpoint whose snapshot lists it
	state      entryState
	c          Committable
}

// ledger is the pure core of the two-phase-commit driver: it knows every prepared transaction of the attempt and decides what a
// snapshot lists, what a completed checkpoint commits and in which order, and when a transaction's identity is free.
//
// Invariants: entries are ordered by checkpoint; at most one is committing; an entry is in every snapshot from the barrier that
// prepared it until its commit is confirmed; it leaves the ledger only when a completed checkpoint does not list it. After a proven
// loss nothing more is committed, or later rows would land behind the missing ones.
type ledger struct {
	entries   []*entry
	barrier   uint64 // newest barrier
	completed uint64 // newest completed checkpoint
	lost      bool
}

// prepare records the transaction flushed at barrier n.
func (l *ledger) prepare(n uint64, c Committable) error {
	if n <= l.barrier {
		return fmt.Errorf("barrier %d follows barrier %d", n, l.barrier)
	}
	l.entries = append(l.entries, &entry{checkpoint: n, listed: n, state: statePrepared, c: c})
	return nil
}

// snapshot returns what the snapshot of barrier n lists, oldest first.
func (l *ledger) snapshot(n uint64) ([]entry, error) {
	if n <= l.barrier {
		return nil, fmt.Errorf("barrier %d follows barrier %d", n, l.barrier)
	}
	l.barrier = n
	var out []entry
	for _, e := range l.entries {
		if e.state != stateCommitted {
			e.listed = n
			out = append(out, *e)
		}
	}
	return out, nil
}

// complete notes that checkpoint n is complete and returns the transactions it frees. A late or repeated notice changes nothing.
func (l *ledger) complete(n uint64) (freed []Committable) {
	l.completed = max(l.completed, n)
	return l.release()
}

// next returns the transaction to commit now, the oldest that a completed checkpoint covers, or nil.
func (l *ledger) next() *entry {
	if l.lost {
		return nil
	}
	for _, e := range l.entries {
		switch {
		case e.checkpoint > l.completed || e.state == stateCommitting:
			return nil
		case e.state == statePrepared:
			e.state = stateCommitting
			return e
		}
	}
	return nil
}

// committed notes that e is visible and returns the transactions that this frees.
func (l *ledger) committed(e *entry) (freed []Committable) {
	e.state = stateCommitted
	return l.release()
}

// failed notes that the commit of e ended with an error; lost tells that its output is proven gone.
func (l *ledger) failed(e *entry, lost bool) {
	e.state = stateFailed
	l.lost = l.lost || lost
}

// settled reports whether every transaction that checkpoint n covers is committed.
func (l *ledger) settled(n uint64) bool {
	return !slices.ContainsFunc(l.entries, func(e *entry) bool { return e.checkpoint <= n && e.state != stateCommitted })
}

func (l *ledger) release() (freed []Committable) {
	l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool {
		free := e.state == stateCommitted && e.listed < l.completed
		if free {
			freed = append(freed, e.c)
		}
		return free
	})
	return freed
}
