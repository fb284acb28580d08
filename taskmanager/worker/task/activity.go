package task

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/operator"
)

// doing is what the task's goroutine is at.
type doing uint32

const (
	waitsForInput doing = iota
	processing
	snapshotting
	opening
	recovering
	fencing
	paused // at the barrier of a stop
)

// activity is what the task is at, for people who ask why nothing moves. The task's goroutine writes it, a few words for each batch, and
// whoever makes the statistics reads it.
type activity struct {
	doing atomic.Uint32
	step  atomic.Uint64 // changes with each batch, so that one that takes long shows
	op    atomic.Int32  // the operator at hand; -1 for the chain

	checkpoint atomic.Pointer[progress]
	splits     atomic.Pointer[operator.SplitReport]
	emits      atomic.Uint64 // calls of the source's Emit, which change splits
	asked      atomic.Uint64 // one more than emits when the source was last asked for its splits

	mu   sync.Mutex
	seen sample
}

// sample is what the last look saw, and when it saw it first.
type sample struct {
	doing doing
	step  uint64
	op    int32
	at    time.Time
}

// progress is how far a checkpoint has come here.
type progress struct {
	checkpoint uint64
	stage      jobv1.CheckpointStage
	since      time.Time
	missing    []string
}

func (a *activity) is(d doing, op int) {
	a.op.Store(int32(op))
	a.doing.Store(uint32(d))
	a.step.Add(1)
}

// reached notes the stage of a checkpoint. The background part of an older one does not hide a newer one.
func (a *activity) reached(checkpoint uint64, stage jobv1.CheckpointStage, missing []string) {
	next := &progress{checkpoint: checkpoint, stage: stage, since: time.Now(), missing: missing}
	for {
		was := a.checkpoint.Load()
		if was != nil && was.checkpoint > checkpoint {
			return
		}
		if was != nil && was.checkpoint == checkpoint && was.stage == stage {
			next.since = was.since
		}
		if a.checkpoint.CompareAndSwap(was, next) {
			return
		}
	}
}

// look returns what the goroutine is at and for how long it has been at this one step, as far as looks can tell.
func (a *activity) look(now time.Time) (d doing, op int, span time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := sample{doing: doing(a.doing.Load()), step: a.step.Load(), op: a.op.Load(), at: now}
	if a.seen.doing == s.doing && a.seen.step == s.step && a.seen.op == s.op && !a.seen.at.IsZero() {
		s.at = a.seen.at
	}
	a.seen = s
	return s.doing, int(s.op), now.Sub(s.at)
}

// describeActivity words what the task is at.
func (t *Task) describeActivity() *jobv1.TaskActivity {
	now := time.Now()
	d, op, span := t.activity.look(now)
	name := t.name
	if op >= 0 && op < len(t.links) {
		name = t.links[op].name
	}
	out := &jobv1.TaskActivity{ForMs: uint64(span.Milliseconds())}
	switch d {
	case waitsForInput:
	case processing:
		out.Doing = "processing records in " + name
	case snapshotting:
		out.Doing = "taking the snapshot of " + name
	case opening:
		out.Doing = "opening " + name
	case recovering:
		out.Doing = "committing the restored transactions of " + name
	case fencing:
		out.Doing = "fencing former attempts of " + name
	case paused:
		out.Doing = "keeping still for the stop of the job"
	}
	for _, o := range t.cfg.Outputs {
		for i, s := range o.Senders {
			b, ok := s.(interface{ Blocked() time.Duration })
			if !ok || i >= len(o.Names) {
				continue
			}
			if span := b.Blocked(); span > 0 && uint64(span.Milliseconds()) >= out.BlockedMs {
				out.BlockedOn, out.BlockedMs = o.Names[i], uint64(span.Milliseconds())
			}
		}
	}
	for i := range t.links {
		for _, w := range t.links[i].Runtime.Stats.Waits.Current() {
			out.Waits = append(out.Waits, &jobv1.TaskWait{What: w.What, ForMs: uint64(now.Sub(w.Since).Milliseconds()), LastError: shortened(w.Last)})
		}
	}
	if p := t.activity.checkpoint.Load(); p != nil {
		out.Checkpoint, out.Stage, out.MissingInputs = p.checkpoint, p.stage, p.missing
		out.StageMs = uint64(max(0, now.Sub(p.since).Milliseconds()))
	}
	if t.cfg.Inbox != nil {
		out.Queued = uint64(t.cfg.Inbox.Queued())
	}
	t.describeSplits(out)
	return out
}

// describeSplits tells what the source last said of its splits and asks it anew.
func (t *Task) describeSplits(out *jobv1.TaskActivity) {
	source, ok := t.source.(operator.SplitReporter)
	if !ok {
		return
	}
	// A source that is asked nothing new is not woken.
	if asked, now := t.activity.asked.Load(), t.activity.emits.Load()+1; asked != now && t.activity.asked.CompareAndSwap(asked, now) {
		t.Post(func() error {
			r := source.Splits()
			t.activity.splits.Store(&r)
			return nil
		})
	}
	r := t.activity.splits.Load()
	if r == nil || !r.Enabled {
		return
	}
	out.EventTime, out.IdleTimeoutMs = true, uint64(r.IdleTimeout.Milliseconds())
	if r.Highest != operator.MinWatermark {
		out.HighestWatermarkMs = &r.Highest
	}
	for _, s := range r.Lowest {
		p := &jobv1.SplitProgress{Name: s.Name, LagRecords: s.Lag}
		if s.Watermark != operator.MinWatermark {
			p.WatermarkMs = &s.Watermark
		}
		if s.Quiet >= 0 {
			quiet := uint64(s.Quiet.Milliseconds())
			p.QuietMs = &quiet
		}
		out.Splits = append(out.Splits, p)
	}
}

// inputNames names the tasks behind input channels.
func (t *Task) inputNames(channels []int) []string {
	names := make([]string, len(channels))
	for i, ch := range channels {
		names[i] = fmt.Sprintf("input %d", ch)
		if ch < len(t.cfg.Inputs) {
			names[i] = t.cfg.Inputs[ch]
		}
	}
	return names
}

// longestError is how many bytes of an error are told.
const longestError = 300

func shortened(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	return text
}
