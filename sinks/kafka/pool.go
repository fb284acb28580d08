package kafkasink

import (
	"errors"
	"fmt"
)

// slotState is where a transactional id stands.
type slotState uint8

const (
	slotUnused    slotState = iota // not initialised, or to be initialised anew
	slotStarting                   // being initialised in the background
	slotReady                      // free
	slotWriting                    // the current transaction
	slotPrepared                   // flushed; waits for its checkpoint and its commit
	slotCommitted                  // visible, but a completed checkpoint may still list it
)

// String names the state.
func (s slotState) String() string {
	return [...]string{"unused", "starting", "ready", "writing", "prepared", "committed"}[s]
}

var (
	errPoolExhausted = errors.New("every transactional id waits for a checkpoint to complete or a commit to be confirmed")
	errSlotState     = errors.New("transactional id in an unexpected state")
)

// pool is the pure core of the ids of one subtask. It grows up to its bound, one spare at a time.
//
// Invariants: at most one slot is writing. A slot becomes free only from committed, or from writing when nothing was written. With
// renew set (transactions v1), or after its client was given up, a freed slot is initialised anew before it is used.
type pool struct {
	slots []slotState
	dirty []bool // the client was given up
	ready []int  // oldest first, so that ids take turns
	bound int
	renew bool
}

// spareSlots is how many slots are kept ready beyond the one in use.
const spareSlots = 1

func newPool(bound int, renew bool) *pool { return &pool{bound: bound, renew: renew} }

// toStart returns the slots to initialise now and marks them.
func (p *pool) toStart() []int {
	var start []int
	have := len(p.ready)
	for _, s := range p.slots {
		if s == slotStarting {
			have++
		}
	}
	for i, s := range p.slots {
		if have < spareSlots && s == slotUnused {
			p.slots[i] = slotStarting
			start = append(start, i)
			have++
		}
	}
	for have < spareSlots && len(p.slots) < p.bound {
		p.slots = append(p.slots, slotStarting)
		p.dirty = append(p.dirty, false)
		start = append(start, len(p.slots)-1)
		have++
	}
	return start
}

// started notes that a slot is initialised.
func (p *pool) started(slot int) error {
	return p.move(slot, slotStarting, slotReady)
}

// acquire takes a free slot. wait is true when none is free now but one is being initialised; with every slot in use the error is
// errPoolExhausted.
func (p *pool) acquire() (slot int, wait bool, err error) {
	if len(p.ready) > 0 {
		slot = p.ready[0]
		p.ready = p.ready[1:]
		p.slots[slot] = slotWriting
		return slot, false, nil
	}
	for _, s := range p.slots {
		if s == slotStarting {
			return 0, true, nil
		}
	}
	return 0, false, fmt.Errorf("%w (%d ids)", errPoolExhausted, len(p.slots))
}

// putBack frees the slot of a transaction in which nothing was written.
func (p *pool) putBack(slot int) error { return p.move(slot, slotWriting, slotReady) }

// prepared notes that the slot's transaction is flushed.
func (p *pool) prepared(slot int) error { return p.move(slot, slotWriting, slotPrepared) }

// committed notes that the slot's transaction is visible; trusted is false when its client was given up.
func (p *pool) committed(slot int, trusted bool) error {
	if !trusted {
		p.dirty[slot] = true
	}
	return p.move(slot, slotPrepared, slotCommitted)
}

// release frees a committed slot that no completed checkpoint lists. renew is true when its client must be closed and its id
// initialised anew.
func (p *pool) release(slot int) (renew bool, err error) {
	if renew = p.renew || p.dirty[slot]; renew {
		p.dirty[slot] = false
		return true, p.move(slot, slotCommitted, slotUnused)
	}
	return false, p.move(slot, slotCommitted, slotReady)
}

func (p *pool) move(slot int, from, to slotState) error {
	if slot < 0 || slot >= len(p.slots) || p.slots[slot] != from {
		return fmt.Errorf("%w: slot %d is not %s", errSlotState, slot, from)
	}
	p.slots[slot] = to
	if to == slotReady {
		p.ready = append(p.ready, slot)
	}
	return nil
}
