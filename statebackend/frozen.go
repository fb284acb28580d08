package statebackend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// Frozen is the state at a barrier, to be written on another goroutine.
type Frozen struct {
	core       *core
	checkpoint uint64
	full       bool
	// The snapshot has the changes of the epochs after from up to epoch, over the segments of the checkpoint that ended with from.
	from, epoch uint64
	before      version
	changes     []changes // one per state
	horizons    map[uint16]*horizon
	schemas     []*snapshotv1.StateSchema
	live        int // rows of all states; -1 while restored rows are not all in memory
	phase       atomic.Int32
	result      *snapshotv1.KeyedSnapshot // set before phaseWritten
	after       version                   // with it
	seq         int                       // of the next segment's name
	// unneeded are local copies that the store is told to keep no longer.
	unneeded []string
	// chain is over the segments of the result, if the backend wants one.
	wantsChain bool
	chain      atomic.Pointer[chain]
}

// Phases of a frozen state.
const (
	phaseIdle int32 = iota
	phaseWriting
	phaseWritten
	phaseFailed // or given up
)

func (c *core) freeze(checkpoint uint64, full bool) *Frozen {
	f := &Frozen{core: c, checkpoint: checkpoint, full: full, from: c.completed, epoch: c.epoch, before: c.version}
	for _, d := range c.states {
		d.state.freeze()
		f.changes = append(f.changes, d.state.changes(f.from))
		f.live += d.state.count()
		if d.expiry != nil {
			if f.horizons == nil {
				f.horizons = map[uint16]*horizon{}
			}
			h := d.expiry.horizon
			f.horizons[d.id] = &h
		}
	}
	f.schemas = c.schemas()
	if c.mode != resident {
		f.live = -1
	}
	f.wantsChain = c.wantsChain()
	c.memory.wanted, c.memory.room = false, 0
	c.epoch++
	c.frozen = append(c.frozen, f)
	c.updateReleased()
	f.unneeded = c.unneeded()
	return f
}

func (c *core) checkpointCompleted(n uint64) {
	for _, f := range c.frozen {
		if f.checkpoint == n && f.phase.Load() == phaseWritten && f.epoch > c.completed {
			c.completed, c.version = f.epoch, f.after
			for _, d := range c.states {
				d.state.release()
			}
			c.install(f)
			c.reap(maxVisits)
			c.reclaim()
			c.comeBack()
		}
		if f.checkpoint < n {
			f.phase.CompareAndSwap(phaseIdle, phaseFailed)
		}
	}
	c.updateReleased()
}

// closedChain stands for a chain that comes too late.
var closedChain = &chain{files: &sources{}}

// openChain opens the segments of the snapshot. Without them the backend goes on as before.
func (f *Frozen) openChain(ctx context.Context) {
	if !f.wantsChain {
		return
	}
	opened, err := f.core.files.acquire(ctx, f.result.GetSegments())
	if err == nil {
		err = opened.prepare(f.core.memory.budget / indexShare)
	}
	var next *chain
	if err == nil {
		next, err = openChain(opened, f.core.filterLen)
	}
	if err == nil && !f.chain.CompareAndSwap(nil, next) {
		err = next.close()
	}
	if err != nil {
		f.core.cfg.Logger.Warn("state segments not opened for reading", "operator", f.core.cfg.Operator, "err", err)
	}
}

// updateReleased forgets frozen states that are of no more use and finds out which versions none refers to.
func (c *core) updateReleased() {
	released := c.completed
	var kept []*Frozen
	for _, f := range c.frozen {
		switch f.phase.Load() {
		case phaseFailed:
			continue
		case phaseWritten:
			if f.epoch <= c.completed {
				c.retire(f.chain.Swap(nil))
				continue
			}
		default:
			released = min(released, f.from)
		}
		kept = append(kept, f)
	}
	c.frozen, c.released = kept, released
}

// Discard gives up a frozen state that will not be written. It may be called from any goroutine, and after Write to no effect.
func (f *Frozen) Discard() { f.phase.CompareAndSwap(phaseIdle, phaseFailed) }

// Write makes the frozen state durable and returns its handle. It is called once, on any goroutine, while the backend goes on. A
// failure of storage is a *StorageError, after which the task may go on; ErrSuperseded tells that nothing was written because a later
// checkpoint is completed.
func (f *Frozen) Write(ctx context.Context) (*snapshotv1.KeyedSnapshot, error) {
	if !f.phase.CompareAndSwap(phaseIdle, phaseWriting) {
		return nil, &StorageError{Op: fmt.Sprintf("write state of checkpoint %d", f.checkpoint), Err: ErrSuperseded}
	}
	if err := f.core.files.release(ctx, f.unneeded); err != nil {
		f.core.cfg.Logger.Warn("local copies of state files not released", "operator", f.core.cfg.Operator, "err", err)
	}
	after, err := f.write(ctx)
	f.changes = nil
	if err != nil {
		f.phase.Store(phaseFailed)
		var storage *StorageError
		if errors.As(err, &storage) {
			return nil, storage
		}
		return nil, fmt.Errorf("write state of operator %s for checkpoint %d: %w", f.core.cfg.Operator, f.checkpoint, err)
	}
	f.result = &snapshotv1.KeyedSnapshot{
		KeyGroups: protoRange(f.core.cfg.KeyGroups), MaxParallelism: uint32(f.core.cfg.MaxParallelism),
		Segments: after.segments, Schemas: f.schemas,
	}
	f.after = after
	f.openChain(ctx)
	f.phase.Store(phaseWritten)
	return f.result, nil
}
