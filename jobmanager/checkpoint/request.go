package checkpoint

import (
	"slices"
	"time"
)

// stop is a stop under way.
type stop struct {
	requestID string
	savepoint bool
	taken     bool // its checkpoint has been triggered
	paused    bool // some source may have seen a stop's barrier
}

// export is a completed checkpoint that becomes a savepoint when it is committed.
type export struct {
	checkpoint uint64
	requestIDs []string // of savepoints
	stopID     string   // of the stop, if it is the stop's savepoint too
}

func (c *Coordinator) requestSavepoint(ev RequestSavepoint) {
	known := slices.Contains(c.savepoints, ev.RequestID) ||
		c.current != nil && slices.Contains(c.current.savepoints, ev.RequestID) ||
		slices.ContainsFunc(c.exports, func(x export) bool { return slices.Contains(x.requestIDs, ev.RequestID) })
	if known {
		return
	}
	c.savepoints = append(c.savepoints, ev.RequestID)
	if c.phase != running {
		c.refuseSavepoints("the job is ending")
	}
}

func (c *Coordinator) requestHandover() {
	switch {
	case c.phase != running:
		c.emit(HandoverFailed{Reason: "the job is ending"})
	case c.handoverAt == 0 && (c.current == nil || !c.current.handover):
		c.handover = true
	}
}

func (c *Coordinator) refuseSavepoints(reason string) {
	for _, id := range c.savepoints {
		c.emit(SavepointFailed{RequestID: id, Reason: reason})
	}
	c.savepoints = nil
}

// requestStop makes room for the stop's checkpoint: one that still collects snapshots would only delay it.
func (c *Coordinator) requestStop(now time.Time, ev RequestStop) {
	switch {
	case c.stop != nil && c.stop.requestID == ev.RequestID:
		return
	case c.stop != nil:
		c.emit(StopFailed{RequestID: ev.RequestID, Reason: "the job is already stopping"})
		return
	case c.phase != running:
		c.emit(StopFailed{RequestID: ev.RequestID, Reason: "the job is already ending"})
		return
	}
	c.stop = &stop{requestID: ev.RequestID, savepoint: ev.Savepoint, paused: c.cfg.Stopping}
	c.cfg.Stopping = false
	c.interrupt(now, "a stop was requested")
}

// interrupt gives up a checkpoint that still collects snapshots, and keeps the requests for the next one.
func (c *Coordinator) interrupt(now time.Time, reason string) {
	r := c.current
	if r == nil || r.stage != collecting {
		return
	}
	c.savepoints = append(r.savepoints, c.savepoints...)
	if r.stop {
		c.stop.taken = false
	}
	c.handover = c.handover || r.handover
	c.drop(now, reason)
}

func (c *Coordinator) cancelStop(now time.Time) {
	s, r := c.stop, c.current
	if s == nil || c.phase != running {
		return
	}
	if r != nil && r.stop {
		switch {
		case r.stage != proposed:
			c.savepoints = append(r.savepoints, c.savepoints...)
			c.handover = c.handover || r.handover
			c.drop(now, "the stop was cancelled")
		case s.savepoint:
			r.stop = false
		default:
			return
		}
	}
	c.stop = nil
	if !s.paused {
		return
	}
	c.emit(Resume{})
	kept := c.exports[:0]
	for _, x := range c.exports {
		unwanted := x.stopID != "" && len(x.requestIDs) == 0
		if x.stopID = ""; unwanted {
			c.emit(Unpin{Checkpoint: x.checkpoint})
			continue
		}
		kept = append(kept, x)
	}
	c.exports = kept
}

// finishCommits goes on with whatever waited for a commit to be acknowledged everywhere.
func (c *Coordinator) finishCommits() {
	acked := c.commits.everywhere()
	waiting := c.exports[:0]
	for _, x := range c.exports {
		if x.checkpoint > acked {
			waiting = append(waiting, x)
			continue
		}
		c.commits.settleNow(c.emit)
		c.emit(Export{Checkpoint: x.checkpoint, RequestIDs: x.requestIDs, StopID: x.stopID})
	}
	c.exports = waiting
	if c.handoverAt > 0 && acked >= c.handoverAt && c.phase == running {
		c.commits.settleNow(c.emit)
		c.emit(Handover{Checkpoint: c.handoverAt})
		c.handoverAt = 0
	}
	if c.phase == closing && acked >= c.completed {
		c.commits.settleNow(c.emit)
		c.emit(Finish{Checkpoint: c.completed})
		c.phase = closed
	}
}

// end answers every request that this attempt cannot answer any more. A stop is not among them: the log remembers it for the next
// attempt.
func (c *Coordinator) end(now time.Time, reason string) {
	c.phase = ended
	why := "the attempt ended: " + reason
	if r := c.current; r != nil {
		c.savepoints = append(r.savepoints, c.savepoints...)
		c.history.add(c.failed(r, now, why), now)
		if r.stage == proposed && r.proposal.GetPinned() {
			c.orphan = r.id
		}
		c.current = nil
	}
	for _, x := range c.exports {
		c.savepoints = append(c.savepoints, x.requestIDs...)
		c.emit(Unpin{Checkpoint: x.checkpoint})
	}
	c.refuseSavepoints(why)
	c.exports, c.stop = nil, nil
}

func (c *Coordinator) afterEnd(ev Event) {
	switch ev := ev.(type) {
	case RequestSavepoint:
		c.emit(SavepointFailed{RequestID: ev.RequestID, Reason: "the attempt has ended"})
	case Decided:
		if ev.Outcome == Committed && ev.Checkpoint == c.orphan && c.orphan != 0 {
			c.emit(Unpin{Checkpoint: c.orphan})
			c.orphan = 0
		}
	}
}
