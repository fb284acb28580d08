package checkpoint

import "time"

// Progress is what a coordinator waits for, for people.
type Progress struct {
	// Checkpoint is the one in progress, since when; 0 for none. Missing are the tasks that have not acknowledged it; once all have,
	// Writing tells that the metadata file is being written and Proposed that the log decides.
	Checkpoint        uint64
	Since             time.Time
	Missing           []TaskID
	Writing, Proposed bool
	// Uncommitted is the newest completed checkpoint that Workers have not acknowledged to be committed, completed at Completed; 0 for
	// none.
	Uncommitted uint64
	Workers     []string
	Completed   time.Time
	// Failures is how many checkpoints have failed since the last completed one, and Reason why the newest of them did.
	Failures int
	Reason   string
	// Newest is the newest completed checkpoint of the attempt, completed at NewestAt; 0 before the first.
	Newest   uint64
	NewestAt time.Time
}

// Progress returns what the coordinator waits for.
func (c *Coordinator) Progress() Progress {
	var p Progress
	if r := c.current; r != nil {
		p.Checkpoint, p.Since = r.id, r.triggered
		p.Writing, p.Proposed = r.stage == writing, r.stage == proposed
		for _, t := range c.cfg.Tasks {
			if _, ok := r.handles[t.ID]; !ok && r.stage == collecting {
				p.Missing = append(p.Missing, t.ID)
			}
		}
	}
	if c.commits.everywhere() < c.commits.target {
		p.Uncommitted, p.Completed = c.commits.target, c.completedAt()
		for _, w := range c.commits.workers {
			if c.commits.acked[w] < c.commits.target {
				p.Workers = append(p.Workers, w)
			}
		}
	}
	for i := len(c.history) - 1; i >= 0 && c.history[i].checkpoint.GetState() == StateFailed; i-- {
		if p.Failures == 0 {
			p.Reason = c.history[i].checkpoint.GetFailure()
		}
		p.Failures++
	}
	if newest := len(c.history) - 1 - p.Failures; newest >= 0 {
		p.Newest, p.NewestAt = c.history[newest].checkpoint.GetId(), c.history[newest].at
	}
	return p
}

// completedAt is when the newest completed checkpoint was; of one that this attempt has not completed itself, when the last one ended.
func (c *Coordinator) completedAt() time.Time {
	for i := len(c.history) - 1; i >= 0; i-- {
		if h := c.history[i]; h.checkpoint.GetId() == c.commits.target {
			return h.at
		}
	}
	return c.lastEnd
}
