package statebackend

import (
	"errors"
	"math"
	"time"
)

// TTL is how long the entries of a state live. The zero value means forever.
type TTL struct {
	// After is how long an entry lives after it was last written, in whole milliseconds.
	After time.Duration
	// EventTime measures it in event time, whose clock is the watermark, instead of in processing time.
	EventTime bool
	// RefreshedByReads makes an entry live on from when it is read, too.
	RefreshedByReads bool
}

// Validate returns an error for a time to live that cannot be.
func (t TTL) Validate() error {
	switch {
	case t.After <= 0:
		return errors.New("its time to live is not positive")
	case t.After%time.Millisecond != 0:
		return errors.New("its time to live is not in whole milliseconds")
	}
	return nil
}

// NoTime is a time that is not known.
const NoTime int64 = math.MinInt64

// HasTTL reports whether any state has or had a time to live, so that SetTime must be called.
func (b *Backend[K]) HasTTL() bool { return len(b.core.aging) > 0 }

// SetTime sets the clocks of states with a time to live, in milliseconds since the epoch: processing time, event time, and the event time
// of the record about to be handled, each NoTime when it is not known. They stand still until the next call, so that what is written
// for a record is there as long as the record is handled. A clock that goes back brings nothing back. It is called after Open before the
// first use of a state, then before each record and timer, and before Freeze.
func (b *Backend[K]) SetTime(processing, event, record int64) {
	b.core.setTime(processing, event, record)
}

func (c *core) setTime(processing, event, record int64) {
	for _, x := range c.aging {
		now, stamp := processing, processing
		if x.ttl.EventTime {
			now, stamp = event, max(event, record)
		}
		x.set(now, stamp)
	}
	const between = 256 // calls between two looks for what has expired
	if c.memory.looks++; c.memory.looks%between == 0 || c.memory.hurry {
		c.memory.hurry = false
		c.reap(64)
	}
}

// reap removes some of the entries that have expired from the tables. It looks again soon when it finds many, so that those are never
// much more than a third of a table.
func (c *core) reap(visits int) {
	if c.memory.held {
		return
	}
	for _, x := range c.aging {
		visited, removed := x.reap(c.forgettable(), visits)
		c.memory.hurry = c.memory.hurry || removed*4 > visited
	}
}
