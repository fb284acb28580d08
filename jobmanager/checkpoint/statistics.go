package checkpoint

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// Values of the state of a jobv1.Checkpoint.
const (
	StateInProgress = "in progress"
	StateCompleted  = "completed"
	StateFailed     = "failed"
)

// history remembers the last finished checkpoints, oldest first.
type history []finished

type finished struct {
	checkpoint *jobv1.Checkpoint
	at         time.Time
}

func (h *history) add(cp *jobv1.Checkpoint, at time.Time) {
	*h = append(*h, finished{cp, at})
	if over := len(*h) - historySize; over > 0 {
		*h = slices.Delete(*h, 0, over)
	}
}

// phases are the longest of any task.
type phases struct {
	alignment, sync, async time.Duration
	last                   TaskID
	took                   time.Duration // until last acknowledged
}

func (p *phases) add(task TaskID, took time.Duration, ev Ack) {
	p.alignment, p.sync, p.async = max(p.alignment, ev.Alignment), max(p.sync, ev.Sync), max(p.async, ev.Async)
	p.last, p.took = task, max(0, took)
}

func (c *Coordinator) describe(r *run, now time.Time, state string) *jobv1.Checkpoint {
	cp := &jobv1.Checkpoint{
		Id:            r.id,
		Attempt:       c.cfg.Attempt,
		State:         state,
		TriggeredAtMs: r.triggered.UnixMilli(),
		DurationMs:    uint64(max(0, now.Sub(r.triggered)).Milliseconds()),
		DeltaBytes:    r.delta,
		TotalBytes:    TotalBytes(c.handles(r)),
		Savepoint:     len(r.savepoints) > 0 || r.proposal.GetPinned(),
		Full:          r.full,
		AlignmentMs:   uint64(r.phases.alignment.Milliseconds()),
		SyncMs:        uint64(r.phases.sync.Milliseconds()),
		AsyncMs:       uint64(r.phases.async.Milliseconds()),
	}
	if len(r.handles) > 0 {
		cp.SlowestTask, cp.SlowestMs = r.phases.last.String(), uint64(r.phases.took.Milliseconds())
	}
	return cp
}

func (c *Coordinator) failed(r *run, now time.Time, reason string) *jobv1.Checkpoint {
	cp := c.describe(r, now, StateFailed)
	cp.Failure = reason
	return cp
}

// Statistics returns the checkpoint in progress, if any, followed by the finished ones of this attempt, newest first.
func (c *Coordinator) Statistics(now time.Time) []*jobv1.Checkpoint {
	list := make([]*jobv1.Checkpoint, 0, len(c.history)+1)
	if r := c.current; r != nil {
		cp := c.describe(r, now, StateInProgress)
		cp.WaitingFor = c.waitingFor(r)
		list = append(list, cp)
	}
	for _, e := range slices.Backward(c.history) {
		cp := proto.CloneOf(e.checkpoint)
		cp.AgeMs = proto.Uint64(uint64(max(0, now.Sub(e.at)).Milliseconds()))
		list = append(list, cp)
	}
	return list
}
