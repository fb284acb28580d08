package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

func (f Facts) task(name string) *Task { return f.byName[name] }

func (t *Task) where() string {
	if t.Host == "" {
		return t.Name
	}
	return t.Name + " on " + t.Host
}

// passed is how long ago the report came, which a duration in it has grown by.
func (t *Task) passed(now time.Time, ms uint64) time.Duration {
	return time.Duration(ms)*time.Millisecond + max(0, now.Sub(t.At))
}

// at says what a task is at, as what follows its name: "waits for ...", "has been ... for ...". It is empty for one that waits for input.
func (t *Task) at(now time.Time) string {
	a := t.Statistics.GetActivity()
	if w := longest(a.GetWaits()); w != nil {
		if a.GetDoing() != "" && !strings.HasPrefix(a.GetDoing(), "processing records") {
			return fmt.Sprintf("is %s; it waits for %s, for %s%s", a.GetDoing(), w.GetWhat(), span(t.passed(now, w.GetForMs())), lastTry(w))
		}
		return fmt.Sprintf("waits for %s, for %s%s", w.GetWhat(), span(t.passed(now, w.GetForMs())), lastTry(w))
	}
	if a.GetDoing() == "" {
		return ""
	}
	return fmt.Sprintf("is %s, for %s", a.GetDoing(), span(t.passed(now, a.GetForMs())))
}

// lastTry tells how the last try ended of what is tried again and again.
func lastTry(w *jobv1.TaskWait) string {
	if w.GetLastError() == "" {
		return ""
	}
	return " (the last try: " + w.GetLastError() + ")"
}

func longest(waits []*jobv1.TaskWait) *jobv1.TaskWait {
	if len(waits) == 0 {
		return nil
	}
	return slices.MaxFunc(waits, func(a, b *jobv1.TaskWait) int { return cmp.Compare(a.GetForMs(), b.GetForMs()) })
}

// unheard names TaskManagers whose tasks do not report.
func (f Facts) unheard() []Finding {
	var out []Finding
	for _, w := range f.Workers {
		x := Finding{Kind: KindUnheard, Blocking: true, Advice: "See that machine and its TaskManager. If it does not come back, its tasks are started elsewhere by themselves."}
		if !w.Connected {
			x.short = fmt.Sprintf("TaskManager %s on %s to come back", w.TaskManager, w.Host)
			x.Text = fmt.Sprintf("TaskManager %s on %s is out of reach, and with it %s.", w.TaskManager, w.Host, some(w.Tasks))
			out = append(out, x)
			continue
		}
		var newest time.Time
		var expected time.Duration
		for _, name := range w.Tasks {
			if t := f.task(name); t != nil && t.At.After(newest) {
				newest, expected = t.At, t.Quiet
			}
		}
		if quiet := f.Now.Sub(newest); !newest.IsZero() && quiet > expected+silence {
			x.Since = newest
			x.short = fmt.Sprintf("a sign of life of the worker on %s", w.Host)
			x.Text = fmt.Sprintf("The worker on %s has reported nothing for %s although its TaskManager %s is there: it may be frozen, or out of memory or CPU.", w.Host, span(quiet), w.TaskManager)
			out = append(out, x)
		}
	}
	return out
}

// checkpoint explains one that takes long.
func (f Facts) checkpoint() Finding {
	c := f.Checkpoint
	if c == nil {
		return Finding{}
	}
	age := f.Now.Sub(c.Since)
	if age < slowCheckpoint {
		return Finding{}
	}
	usual := time.Duration(0)
	if f.Last != nil {
		usual = f.Last.Duration
	}
	x := Finding{Kind: KindCheckpoint, Since: c.Since, Blocking: age >= max(slowCheckpoint, 3*usual)}
	begin := fmt.Sprintf("Checkpoint %d has been in progress for %s", c.ID, span(age))
	x.short = fmt.Sprintf("checkpoint %d, for %s: ", c.ID, span(age))
	switch c.Stage {
	case Metadata:
		x.short += "its metadata file is being written"
		x.Text = begin + ": all tasks have acknowledged, and its metadata file is being written to checkpoint storage."
		x.Advice = "See whether the leading JobManager reaches the checkpoint storage, and whether that is slow or full."
		return x
	case Log:
		x.short += "the log of the JobManagers decides"
		x.Text = begin + ": everything is on storage, and the log of the JobManagers has to take it up."
		x.Advice = "See whether the JobManagers reach each other and whether their disks are slow: 'weir members', and their logs."
		return x
	case Collecting:
	}
	x.Text = fmt.Sprintf("%s: %d of %d tasks %s not acknowledged it.", begin, len(c.Missing), c.Tasks, plural(len(c.Missing), "has", "have"))
	roots, others := f.roots(c)
	for _, r := range limit(roots) {
		x.Text += fmt.Sprintf("\n%s %s.", r.task.where(), r.why)
		x.Advice = cmp.Or(x.Advice, r.advice)
	}
	if len(others) > 0 {
		x.Text += fmt.Sprintf("\nThe barrier has not come through yet to %s.", some(others))
	}
	switch {
	case len(roots) > 0:
		x.short += roots[0].task.where() + " " + roots[0].why
	default:
		x.short += "it has not come to " + some(c.Missing)
	}
	if c.Timeout > 0 {
		x.Text += fmt.Sprintf("\nIt fails after %s; what it would have made visible comes with the next one that completes.", span(c.Timeout))
	}
	return x
}

// root is a task on which a checkpoint waits by its own doing.
type root struct {
	task   *Task
	why    string
	advice string
	rank   int
	span   time.Duration
}

// roots finds the tasks that hold a checkpoint up, the worst first, and those that only wait for them.
func (f Facts) roots(c *Checkpoint) (roots []root, others []string) {
	s := search{Facts: f, checkpoint: c.ID, found: make(map[string]*root)}
	for _, name := range c.Missing {
		if r := s.holds(name); r != nil {
			roots = append(roots, *r)
		} else {
			others = append(others, name)
		}
	}
	slices.SortStableFunc(roots, func(a, b root) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.span, a.span)) })
	return roots, others
}

// search finds out which tasks hold a checkpoint up and which only wait for those.
type search struct {
	Facts
	checkpoint uint64
	// found has an entry for each task that was looked at: nil while it is, and for those that hold nothing up. Tasks may wait for one
	// another in a circle: one for room in the queue of a second, which still aligns and waits for the barrier of the first.
	found map[string]*root
}

// holds returns why a task has not acknowledged the checkpoint; nil when it only waits for another one, and when it is not known.
func (s *search) holds(name string) *root {
	if r, seen := s.found[name]; seen {
		return r
	}
	s.found[name] = nil
	t := s.task(name)
	if t == nil || t.Statistics.GetActivity() == nil {
		return nil
	}
	if r, ok := s.look(t); ok {
		s.found[name] = &r
	}
	return s.found[name]
}

func (s *search) look(t *Task) (root, bool) {
	a := t.Statistics.GetActivity()
	r := root{task: t}
	step, stage := t.passed(s.Now, a.GetForMs()), t.passed(s.Now, a.GetStageMs())
	wait := longest(a.GetWaits())
	met := a.GetCheckpoint() == s.checkpoint
	aligning := met && a.GetStage() == jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING && len(a.GetMissingInputs()) > 0
	switch {
	case wait != nil && t.passed(s.Now, wait.GetForMs()) > slowWait/2:
		r.span = t.passed(s.Now, wait.GetForMs())
		r.why = fmt.Sprintf("waits for %s, for %s%s", wait.GetWhat(), span(r.span), lastTry(wait))
		r.advice = externalAdvice
	case met && a.GetStage() == jobv1.CheckpointStage_CHECKPOINT_STAGE_SNAPSHOT:
		r.span, r.why = stage, fmt.Sprintf("is %s, for %s", cmp.Or(a.GetDoing(), "taking its snapshot"), span(stage))
	case met && a.GetStage() == jobv1.CheckpointStage_CHECKPOINT_STAGE_WRITING:
		r.span, r.why = stage, fmt.Sprintf("is writing its state to checkpoint storage, for %s", span(stage))
		r.advice = "See whether that machine reaches the checkpoint storage, and whether that is slow or full."
		r.rank = 1
	case a.GetBlockedOn() != "":
		if s.holds(a.GetBlockedOn()) != nil {
			return root{}, false // the other one is named
		}
		r.span = t.passed(s.Now, a.GetBlockedMs())
		r.why = fmt.Sprintf("cannot pass its records on: the input of %s has been full for %s", a.GetBlockedOn(), span(r.span))
		r.rank = 2
	case a.GetDoing() != "" && step >= slowStep:
		r.span = step
		r.why = fmt.Sprintf("is %s and has been at one batch for %s; the barrier waits behind it", a.GetDoing(), span(step))
		r.advice = s.stuckAdvice(t)
	case aligning && s.blockedOn(t.Name, a.GetMissingInputs()):
		r.span, r.rank = stage, 2
		r.why = fmt.Sprintf("works its input off before the barrier of %s: %s records/s, %d batches in its queues",
			some(a.GetMissingInputs()), rate(t.PerSecond), a.GetQueued())
		r.advice = s.stuckAdvice(t)
	case aligning:
		r.span = stage
		r.why = fmt.Sprintf("has the barrier of some inputs and, for %s, not of %s", span(stage), some(a.GetMissingInputs()))
		r.rank = 3
		for _, up := range a.GetMissingInputs() {
			if u := s.task(up); u != nil && u.Statistics.GetActivity().GetCheckpoint() < s.checkpoint && s.holds(up) != nil {
				return root{}, false
			}
		}
	case a.GetQueued() > 0 && a.GetDoing() != "":
		r.why = fmt.Sprintf("works its input off before the barrier: %s records/s, %d batches in its queues", rate(t.PerSecond), a.GetQueued())
		r.rank = 2
		r.advice = s.stuckAdvice(t)
	case met && a.GetStage() == jobv1.CheckpointStage_CHECKPOINT_STAGE_DONE:
		r.why, r.rank = "has stored its snapshot; the word of it is on its way", 4
	default:
		return root{}, false
	}
	return r, true
}

// blockedOn reports whether one of some tasks waits for room in the queue of a task.
func (f Facts) blockedOn(task string, some []string) bool {
	return slices.ContainsFunc(some, func(name string) bool {
		t := f.task(name)
		return t != nil && t.Statistics.GetActivity().GetBlockedOn() == task
	})
}

func (f Facts) stuckAdvice(t *Task) string {
	return fmt.Sprintf("That task is slow or stuck in user code or in a call to another system. SIGQUIT to its worker on %s ('worker started ... pid=' in the TaskManager's log) "+
		"makes it print where it is; 'weir logs %s' shows that, and the job restarts.", t.Host, f.JobID)
}

// commit explains a completed checkpoint whose output is not visible yet.
func (f Facts) commit() Finding {
	c := f.Commit
	if c == nil || f.Now.Sub(c.Since) < slowWait {
		return Finding{}
	}
	age := f.Now.Sub(c.Since)
	x := Finding{Kind: KindCommit, Since: c.Since, Blocking: true}
	x.short = fmt.Sprintf("the commit of checkpoint %d, for %s", c.Checkpoint, span(age))
	x.Text = fmt.Sprintf("Checkpoint %d is completed, but for %s its output has not been committed everywhere.", c.Checkpoint, span(age))
	found := false
	for _, t := range f.Tasks {
		if slices.Contains(c.Workers, t.TaskManager) {
			if w := longest(t.Statistics.GetActivity().GetWaits()); w != nil && t.passed(f.Now, w.GetForMs()) > slowWait/2 {
				x.Text += fmt.Sprintf("\n%s waits for %s, for %s%s.", t.where(), w.GetWhat(), span(t.passed(f.Now, w.GetForMs())), lastTry(w))
				if !found {
					x.short += ": " + t.where() + " waits for " + w.GetWhat()
				}
				found = true
			}
		}
	}
	if found {
		x.Advice = externalAdvice
	} else {
		x.Text += "\nNot acknowledged by the TaskManagers " + some(c.Workers) + "."
		x.Advice = "A committed transaction is never lost: it is tried again until it succeeds. See 'weir logs " + f.JobID + "'."
	}
	return x
}

const externalAdvice = "See that system: it may be down, overloaded, or cut off from the machine of that task. The job goes on by itself when it answers."

// WaitsOutside reports whether a task has been waiting for another system for so long that it is told of.
func (f Facts) WaitsOutside() bool { return len(f.external()) > 0 }

// external tells of other systems that do not answer, each once.
func (f Facts) external() []Finding {
	type group struct {
		what  string
		last  string // of the one that has waited longest
		span  time.Duration
		tasks []string
	}
	var groups []*group
	for i := range f.Tasks {
		t := &f.Tasks[i]
		for _, w := range t.Statistics.GetActivity().GetWaits() {
			passed := t.passed(f.Now, w.GetForMs())
			if passed < slowWait {
				continue
			}
			at := slices.IndexFunc(groups, func(g *group) bool { return g.what == w.GetWhat() })
			if at < 0 {
				at = len(groups)
				groups = append(groups, &group{what: w.GetWhat()})
			}
			g := groups[at]
			if passed > g.span {
				g.span, g.last = passed, lastTry(w)
			}
			if !slices.Contains(g.tasks, t.where()) {
				g.tasks = append(g.tasks, t.where())
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.span, a.span) })
	var out []Finding
	for _, g := range groups {
		out = append(out, Finding{
			Kind: KindExternal, Since: f.Now.Add(-g.span), Blocking: true, Advice: externalAdvice,
			short: fmt.Sprintf("%s, for %s (%s)", g.what, span(g.span), some(g.tasks)),
			Text:  fmt.Sprintf("%s %s for %s, for %s%s.", some(g.tasks), plural(len(g.tasks), "waits", "wait"), g.what, span(g.span), g.last),
		})
	}
	return out
}

// pressure names the task that everything before it waits for, when nothing moves.
func (f Facts) pressure() Finding {
	if f.Checkpoint != nil && f.Now.Sub(f.Checkpoint.Since) >= slowCheckpoint {
		return Finding{} // told there
	}
	for i := range f.Tasks {
		t := &f.Tasks[i]
		a := t.Statistics.GetActivity()
		full := t.passed(f.Now, a.GetBlockedMs())
		b := f.task(a.GetBlockedOn())
		if b == nil || a.GetBlockedOn() == "" || full < slowWait || b.Statistics.GetActivity().GetBlockedOn() != "" {
			continue
		}
		x := Finding{Kind: KindPressure, Since: f.Now.Add(-full), Blocking: full >= slowStep}
		x.short = fmt.Sprintf("%s to take records in (its input has been full for %s)", b.where(), span(full))
		x.Text = fmt.Sprintf("The input of %s has been full for %s, so that %s cannot pass its records on.", b.where(), span(full), t.where())
		if at := b.at(f.Now); at != "" {
			x.Text += fmt.Sprintf("\n%s %s.", b.where(), at)
		}
		x.Advice = f.stuckAdvice(b)
		return x
	}
	return Finding{}
}

func (f Facts) failedCheckpoints() Finding {
	if f.FailedCheckpoints == 0 {
		return Finding{}
	}
	return Finding{
		Kind: KindCheckpoints,
		Text: fmt.Sprintf("%s failed since the last one that completed. The last reason: %s", plural(f.FailedCheckpoints, "A checkpoint has", fmt.Sprintf("%d checkpoints have", f.FailedCheckpoints)),
			f.CheckpointFailure),
		Advice: "Nothing is lost by it: the next one that completes makes everything visible. 'weir checkpoints " + f.JobID + "' lists them.",
	}
}
