package slots

import (
	"errors"
	"fmt"
)

// state is where a transactional id stands.
type state uint8

const (
	unused    state = iota // not initialised, or to be initialised anew
	starting               // being initialised in the background
	ready                  // free
	writing                // the current transaction
	prepared               // flushed; waits for its checkpoint and its commit
	committed              // visible, but a completed checkpoint may still list it
)

// String names the state.
func (s state) String() string {
	return [...]string{"unused", "starting", "ready", "writing", "prepared", "committed"}[s]
}

var (
	// ErrExhausted tells that the pool has reached its bound.
	ErrExhausted = errors.New("every transactional id waits for a checkpoint to complete or a commit to be confirmed")
	// ErrState tells that a slot was to leave a state that it is not in.
	ErrState = errors.New("transactional id in an unexpected state")
)

// Pool holds the slots of one subtask. It grows up to its bound, one spare at a time. It is not safe for concurrent use.
//
// Invariants: at most one slot is writing. A slot becomes free only from committed, or from writing when nothing was written. With
// renew set (transactions v1), or after its client was given up, a freed slot is initialised anew before it is used.
type Pool struct {
	slots []state
	dirty []bool // the client was given up
	free  []int  // the ready ones, oldest first, so that ids take turns
	bound int
	renew bool
}

// spareSlots is how many slots are kept ready beyond the one in use.
const spareSlots = 1

// NewPool returns a pool of at most bound slots.
func NewPool(bound int, renew bool) *Pool { return &Pool{bound: bound, renew: renew} }

// ToStart returns the slots to initialise now and marks them.
func (p *Pool) ToStart() []int {
	var start []int
	have := len(p.free)
	for _, s := range p.slots {
		if s == starting {
			have++
		}
	}
	for i, s := range p.slots {
		if have < spareSlots && s == unused {
			p.slots[i] = starting
			start = append(start, i)
			have++
		}
	}
	for have < spareSlots && len(p.slots) < p.bound {
		p.slots = append(p.slots, starting)
		p.dirty = append(p.dirty, false)
		start = append(start, len(p.slots)-1)
		have++
	}
	return start
}

// Started notes that a slot is initialised.
func (p *Pool) Started(slot int) error {
	return p.move(slot, starting, ready)
}

// Acquire takes a free slot. wait is true when none is free now but one is being initialised; with every slot in use the error is
// ErrExhausted.
func (p *Pool) Acquire() (slot int, wait bool, err error) {
	if len(p.free) > 0 {
		slot = p.free[0]
		p.free = p.free[1:]
		p.slots[slot] = writing
		return slot, false, nil
	}
	for _, s := range p.slots {
		if s == starting {
			return 0, true, nil
		}
	}
	return 0, false, fmt.Errorf("%w (%d ids)", ErrExhausted, len(p.slots))
}

// PutBack frees the slot of a transaction in which nothing was written.
func (p *Pool) PutBack(slot int) error { return p.move(slot, writing, ready) }

// Prepared notes that the slot's transaction is flushed.
func (p *Pool) Prepared(slot int) error { return p.move(slot, writing, prepared) }

// Committed notes that the slot's transaction is visible.
func (p *Pool) Committed(slot int) error {
	return p.move(slot, prepared, committed)
}

// Free reports whether a slot can be acquired at once.
func (p *Pool) Free() bool { return len(p.free) > 0 }

// Pending reports whether the slot's transaction is prepared and not known to be committed.
func (p *Pool) Pending(slot int) bool { return p.slots[slot] == prepared }

// Distrust notes that the slot's client was given up.
func (p *Pool) Distrust(slot int) { p.dirty[slot] = true }

// Trusted reports whether the slot's client was not given up.
func (p *Pool) Trusted(slot int) bool { return !p.dirty[slot] }

// Release frees a committed slot that no completed checkpoint lists. renew is true when its client must be closed and its id
// initialised anew.
func (p *Pool) Release(slot int) (renew bool, err error) {
	if renew = p.renew || p.dirty[slot]; renew {
		p.dirty[slot] = false
		return true, p.move(slot, committed, unused)
	}
	return false, p.move(slot, committed, ready)
}

func (p *Pool) move(slot int, from, to state) error {
	if slot < 0 || slot >= len(p.slots) || p.slots[slot] != from {
		return fmt.Errorf("%w: slot %d is not %s", ErrState, slot, from)
	}
	p.slots[slot] = to
	if to == ready {
		p.free = append(p.free, slot)
	}
	return nil
}
