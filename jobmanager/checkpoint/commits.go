package checkpoint

import (
	"slices"
	"time"
)

// commits tracks who has acknowledged what. Acknowledgements are cumulative: n stands for everything up to n.
type commits struct {
	workers []string
	acked   map[string]uint64
	// counts is the number of workers by what they have acknowledged, so that no acknowledgement looks at every worker.
	counts map[uint64]int
	// target is the newest completed checkpoint; 0 before the first.
	target uint64
	// noticed is when workers were last told about target; zero when they have not been.
	noticed time.Time
	// unsettled are completed checkpoints with transactions, oldest first, not yet told to be committed.
	unsettled []uint64
	// uncommitted are completed checkpoints with transactions that not every worker has acknowledged, oldest first.
	uncommitted []uint64
	// settleSince is when the oldest of them was acknowledged everywhere; zero when it has not been.
	settleSince time.Time
}

func newCommits(workers []string) commits {
	c := commits{workers: workers, acked: make(map[string]uint64, len(workers)), counts: map[uint64]int{}}
	for _, w := range workers {
		c.acked[w] = 0
		c.counts[0]++
	}
	return c
}

func (c *commits) complete(id uint64, transactions bool) {
	c.target = id
	c.noticed = time.Time{}
	if transactions {
		c.unsettled = append(c.unsettled, id)
		c.uncommitted = append(c.uncommitted, id)
	}
}

// mostUncommitted is how many completed checkpoints may wait for their commits before there is no further one: each takes a
// transactional id, of which a sink has room for a few late ones.
const mostUncommitted = 2

// behind reports whether the commits are too far behind the completions for another checkpoint.
func (c *commits) behind() bool { return len(c.uncommitted) >= mostUncommitted }

// ack ignores what cannot be, a checkpoint that nobody was told to commit, and what is known.
func (c *commits) ack(worker string, id uint64) {
	before, known := c.acked[worker]
	if !known || id > c.target || id <= before {
		return
	}
	c.acked[worker] = id
	c.counts[id]++
	if c.counts[before]--; c.counts[before] == 0 {
		delete(c.counts, before)
	}
	done := c.everywhere()
	c.uncommitted = slices.DeleteFunc(c.uncommitted, func(id uint64) bool { return id <= done })
}

// everywhere returns the checkpoint up to which every worker has committed everything.
func (c *commits) everywhere() uint64 {
	least := c.target
	for acked := range c.counts {
		least = min(least, acked)
	}
	return least
}

func (c *commits) repeat(now time.Time, emit func(Effect)) {
	if at, ok := c.noticeAt(); !ok || now.Before(at) {
		return
	}
	var pending []string
	for _, w := range c.workers {
		if c.acked[w] < c.target {
			pending = append(pending, w)
		}
	}
	c.noticed = now
	emit(Notify{Checkpoint: c.target, Workers: pending})
}

func (c *commits) noticeAt() (time.Time, bool) {
	if c.everywhere() >= c.target {
		return time.Time{}, false
	}
	if c.noticed.IsZero() {
		return time.Time{}, true
	}
	return c.noticed.Add(notifyEvery), true
}

// settle tells the log now and then, not at every checkpoint.
func (c *commits) settle(now time.Time, emit func(Effect)) {
	if len(c.unsettled) == 0 || c.unsettled[0] > c.everywhere() {
		return
	}
	if c.settleSince.IsZero() {
		c.settleSince = now
	}
	if !now.Before(c.settleSince.Add(settleWithin)) {
		c.settleNow(emit)
	}
}

func (c *commits) settleNow(emit func(Effect)) {
	acked := c.everywhere()
	n := 0
	for n < len(c.unsettled) && c.unsettled[n] <= acked {
		n++
	}
	c.settleSince = time.Time{}
	if n > 0 {
		emit(Settle{Checkpoint: c.unsettled[n-1]})
		c.unsettled = c.unsettled[n:]
	}
}

func (c *commits) deadline() (time.Time, bool) {
	at, ok := c.noticeAt()
	if !c.settleSince.IsZero() {
		if due := c.settleSince.Add(settleWithin); !ok || due.Before(at) {
			at, ok = due, true
		}
	}
	return at, ok
}
