package checkpoint

import (
	"fmt"
	"slices"
	"time"
)

// Coordinator decides about the checkpoints of one attempt.
type Coordinator struct {
	cfg     Config
	tasks   map[TaskID]struct{}
	sources []string // workers with source tasks
	workers []string // all workers, in order of their first task
	effects []Effect // of the present call

	nextID, limit uint64
	reserving     bool // asked for ids and not answered

	current *run // between trigger and decision; nil otherwise
	// lastTrigger and lastEnd pace the regular checkpoints; zero before the first one.
	lastTrigger, lastEnd time.Time
	failures             int  // consecutive, counted ones
	storageOnly          bool // all of them were trouble of storage

	completed uint64 // newest completed checkpoint of this attempt; 0 before the first
	// since is one more than the newest snapshot after which something changed, so that zero means no change.
	since      uint64
	force      bool            // a checkpoint is wanted although nothing changed
	urgent     bool            // the next checkpoint does not wait for the interval
	inputEnded map[string]bool // by worker

	commits    commits
	savepoints []string // request ids that wait for a checkpoint to be triggered
	exports    []export // completed, and waiting for the commit
	stop       *stop
	// handover tells that a checkpoint for the next attempt is wanted and not triggered; handoverAt is the completed one whose commit is
	// waited for, 0 for none.
	handover   bool
	handoverAt uint64
	files      files
	history    history
	phase      phase
	// orphan is a pinned checkpoint that was undecided when the attempt ended; 0 for none.
	orphan uint64
}

type phase uint8

const (
	running phase = iota
	closing       // the last checkpoint is completed and being committed
	closed        // Finish has been returned
	ended         // the attempt is over, or asked to be failed
)

// New returns the coordinator of an attempt that has just been started, and its first effects.
func New(cfg Config, now time.Time) (*Coordinator, []Effect) {
	cfg.Retained = max(1, cfg.Retained)
	cfg.MinPause = max(0, cfg.MinPause)
	if cfg.Interval <= 0 {
		cfg.Interval = defaultInterval
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = defaultReserve
	}
	c := &Coordinator{
		cfg:        cfg,
		tasks:      make(map[TaskID]struct{}, len(cfg.Tasks)),
		nextID:     max(cfg.FirstID, cfg.Restored+1, cfg.Completed+1),
		limit:      cfg.Limit,
		inputEnded: make(map[string]bool),
		force:      cfg.Periodic && cfg.Initial,
		urgent:     cfg.Periodic && cfg.Initial,
	}
	seen, reading := map[string]bool{}, map[string]bool{}
	for _, t := range cfg.Tasks {
		c.tasks[t.ID] = struct{}{}
		if !seen[t.Worker] {
			seen[t.Worker] = true
			c.workers = append(c.workers, t.Worker)
		}
		if t.Source && !reading[t.Worker] {
			reading[t.Worker] = true
			c.sources = append(c.sources, t.Worker)
		}
	}
	c.commits = newCommits(c.workers)
	if cfg.Adopted {
		c.adopt()
	}
	// The interval counts from the start, unless the first checkpoint is wanted at once.
	c.lastTrigger = now
	c.advance(now)
	return c, c.take()
}

// adopt takes over what the log knows of an attempt that a former leader has begun.
func (c *Coordinator) adopt() {
	c.urgent = true
	// Whether anything has changed since the last checkpoint was told to the former leader.
	c.force = c.force || c.cfg.Periodic
	for _, m := range c.cfg.History {
		c.files.completed(m.GetCheckpoint(), c.cfg.Retained, m.GetTasks())
	}
	if id := c.cfg.Completed; id > 0 {
		c.completed = id
		c.commits.complete(id, c.cfg.Uncommitted)
	}
}

// Handle takes an event that happened at now and returns what follows from it. Times must not go back.
func (c *Coordinator) Handle(now time.Time, ev Event) []Effect {
	if c.phase == ended {
		c.afterEnd(ev)
		return c.take()
	}
	switch ev := ev.(type) {
	case Tick:
	case Ack:
		c.ack(now, ev)
	case Decline:
		c.decline(now, ev)
	case Interrupted:
		c.interrupt(now, ev.Reason)
	case MetadataWritten:
		c.metadataWritten(now, ev)
	case MetadataFailed:
		if r := c.current; r != nil && r.id == ev.Checkpoint && r.stage == writing {
			c.fail(now, failure{reason: "metadata could not be written: " + ev.Reason, storage: true})
		}
	case Decided:
		c.decided(now, ev)
	case CommitAcked:
		c.commits.ack(ev.Worker, ev.Checkpoint)
	case Activity:
		c.since = max(c.since, ev.Since+1)
	case InputEnded:
		c.workerEnded(ev.Worker)
	case RequestSavepoint:
		c.requestSavepoint(ev)
	case RequestHandover:
		c.requestHandover()
	case RequestStop:
		c.requestStop(now, ev)
	case StopCancelled:
		c.cancelStop(now)
	case AttemptEnded:
		c.end(now, ev.Reason)
	case IDsReserved:
		c.reserving = false
		c.nextID = max(c.nextID, ev.First)
		c.limit = max(c.limit, ev.Limit)
	default:
		panic(fmt.Sprintf("checkpoint: unknown event %T", ev))
	}
	c.advance(now)
	return c.take()
}

func (c *Coordinator) emit(e Effect) { c.effects = append(c.effects, e) }

func (c *Coordinator) take() []Effect {
	effects := c.effects
	c.effects = nil
	return effects
}

// advance does whatever has become due, whichever event made it so.
func (c *Coordinator) advance(now time.Time) {
	if c.phase == ended {
		return
	}
	if c.expire(now); c.phase == ended {
		return
	}
	c.finishCommits()
	c.commits.repeat(now, c.emit)
	c.commits.settle(now, c.emit)
	c.reserve()
	if at, ok := c.triggerAt(); ok && !now.Before(at) {
		c.trigger(now)
	}
}

// reserve asks for more ids before the last one is used, so that no checkpoint waits for the log.
func (c *Coordinator) reserve() {
	if c.reserving || c.phase != running || c.nextID+c.cfg.Reserve/4 < c.limit {
		return
	}
	c.reserving = true
	c.emit(ReserveIDs{Limit: max(c.nextID, c.limit) + c.cfg.Reserve})
}

// triggerAt returns when the next checkpoint is to be triggered, as far as is known without a further event.
func (c *Coordinator) triggerAt() (time.Time, bool) {
	if c.phase != running || c.current != nil || c.nextID >= c.limit {
		return time.Time{}, false
	}
	if c.stop != nil {
		// Between a stop's checkpoint and its end there is none.
		return time.Time{}, !c.stop.taken
	}
	if len(c.savepoints) > 0 || c.handover {
		return time.Time{}, true
	}
	if c.commits.behind() {
		return time.Time{}, false // until an acknowledgement comes
	}
	if changed := c.since > c.completed; !c.force && (!changed || !c.cfg.Periodic) {
		return time.Time{}, false
	}
	var at time.Time
	if !c.urgent {
		at = c.lastTrigger.Add(c.cfg.Interval)
	}
	if !c.lastEnd.IsZero() {
		if paused := c.lastEnd.Add(c.cfg.MinPause); paused.After(at) {
			at = paused
		}
	}
	return at, true
}

// Deadline returns the time at which the coordinator wants a [Tick]; ok is false when it waits for events only. It changes only in
// Handle.
func (c *Coordinator) Deadline() (at time.Time, ok bool) {
	if c.phase == ended {
		return time.Time{}, false
	}
	at, ok = c.triggerAt()
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if r := c.current; r != nil && r.stage != proposed && c.cfg.Timeout > 0 {
		earlier(r.triggered.Add(c.cfg.Timeout))
	}
	if t, due := c.commits.deadline(); due {
		earlier(t)
	}
	return at, ok
}

func (c *Coordinator) workerEnded(worker string) {
	if !slices.Contains(c.sources, worker) || c.inputEnded[worker] {
		return
	}
	c.inputEnded[worker] = true
	if len(c.inputEnded) == len(c.sources) {
		c.force, c.urgent = true, true
	}
}
