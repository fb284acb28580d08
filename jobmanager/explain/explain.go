package explain

import (
	"fmt"
	"strings"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// Kinds of findings, for programs.
const (
	KindEnded       = "ended"
	KindLog         = "log"
	KindLeader      = "leader-change"
	KindStopping    = "stopping-workers"
	KindBackOff     = "back-off"
	KindSlots       = "slots"
	KindPrepare     = "prepare"
	KindStart       = "start"
	KindClose       = "close"
	KindSettle      = "settle"
	KindStop        = "stop"
	KindRescale     = "rescale"
	KindCheckpoint  = "checkpoint"
	KindCommit      = "commit"
	KindExternal    = "external"
	KindWatermark   = "watermark"
	KindPressure    = "back-pressure"
	KindUnheard     = "unheard"
	KindFailure     = "failure"
	KindCheckpoints = "failed-checkpoints"
	KindLost        = "lost-output"
	KindTransaction = "transaction"
	KindHeld        = "held-output"
	KindRestarted   = "restarted"
	KindNormal      = "normal"
)

// Finding is one thing that is going on.
type Finding struct {
	Kind string
	// Text is in sentences; further lines are details.
	Text string
	// Since is zero when not known.
	Since time.Time
	// Advice says what can be done, in sentences; empty for nothing.
	Advice string
	// Blocking tells that the job, or its output, does not get on because of it.
	Blocking bool

	// short completes "waits for".
	short string
}

// Explanation is the answer, the most important finding first. It always has one.
type Explanation struct {
	Findings []Finding
}

// Times from which on something is worth telling.
const (
	// slowWait is long for an answer of another system.
	slowWait = 2 * time.Second
	// slowCheckpoint is long for a checkpoint, unless the job's usually take longer.
	slowCheckpoint = 3 * time.Second
	// slowStep is long for one batch of records.
	slowStep = 3 * time.Second
	// silence is long for a task's report; one comes each second.
	silence = 5 * time.Second
	// spread is how far a split's event time may be behind before it counts as holding the others back.
	spread = 10 * time.Second
	// recently is how long a failure is worth telling of in a job that runs.
	recently = time.Minute
	// steady is how long a job runs after a failure until that alone is no reason to doubt that it runs normally.
	steady = 10 * time.Second
)

// Explain makes sentences of facts.
func Explain(f Facts) Explanation {
	f.byName = make(map[string]*Task, len(f.Tasks))
	for i := range f.Tasks {
		f.byName[f.Tasks[i].Name] = &f.Tasks[i]
	}
	var out []Finding
	add := func(fs ...Finding) {
		for _, x := range fs {
			if x.Text != "" {
				out = append(out, x)
			}
		}
	}
	if f.LogBusy {
		add(Finding{
			Kind: KindLog, short: "the log of the JobManagers", Blocking: true,
			Text:   "The leading JobManager waits for its log: a majority of JobManagers has not confirmed what it wrote.",
			Advice: "See whether the JobManagers reach each other and whether their disks are slow: 'weir members', and their logs.",
		})
	} else {
		add(f.phase())
	}
	if f.Phase == Running {
		add(f.unheard()...)
		add(f.checkpoint(), f.commit())
		add(f.external()...)
		add(f.watermark(), f.pressure(), f.failedCheckpoints())
	}
	add(f.lost())
	if f.Phase == Running {
		add(f.oldTransaction())
		add(f.held()...)
	}
	add(f.failure())
	blocked := false
	for _, x := range out {
		blocked = blocked || x.Blocking
	}
	if f.Phase == Running && !blocked {
		out = append([]Finding{f.normal()}, out...)
	}
	// What blocks comes first, each in the order above.
	var ordered []Finding
	for _, blocking := range []bool{true, false} {
		for _, x := range out {
			if x.Blocking == blocking {
				ordered = append(ordered, x)
			}
		}
	}
	return Explanation{ordered}
}

// Waiting completes "waits for"; it is empty for a job that runs normally or has ended.
func (e Explanation) Waiting() string {
	if len(e.Findings) > 0 && e.Findings[0].Blocking {
		return e.Findings[0].short
	}
	return ""
}

// Summary is one sentence.
func (e Explanation) Summary() string {
	if w := e.Waiting(); w != "" {
		if e.Findings[0].Kind == KindSlots {
			return "It " + w + "."
		}
		return "It waits for " + w + "."
	}
	first, _, _ := strings.Cut(e.Findings[0].Text, "\n")
	return first
}

// phase explains what the driver is at; nothing while the job runs and nobody has asked for its end.
func (f Facts) phase() Finding {
	x := Finding{Since: f.Since, Blocking: true}
	waited := f.Now.Sub(f.Since)
	switch f.Phase {
	case Ended:
		return f.ended()
	case Returning:
		x.Kind = KindLeader
		x.short = "TaskManagers to come back to the new leader: " + strings.Join(f.Absent, ", ")
		x.Text = fmt.Sprintf("A new JobManager leads since %s ago. Before it goes on it waits for TaskManagers of this job to come back: %s. The tasks there may well be running.",
			span(waited), strings.Join(f.Absent, ", "))
		if !f.Until.IsZero() {
			x.Text += fmt.Sprintf(" It goes on without them in %s.", span(f.Until.Sub(f.Now)))
		}
		x.Advice = "If it does not pass: see whether those TaskManagers run and reach the JobManagers ('weir members')."
	case Stopping:
		x.Kind, x.short = KindStopping, "workers to stop: "+strings.Join(f.Undead, ", ")
		x.Text = fmt.Sprintf("The workers of the last attempt are being stopped, for %s: %s. Those that do not end by themselves are killed.",
			span(waited), orNone(f.Undead, "all have ended"))
	case BackOff:
		return f.backOff(x)
	case Slots:
		x.Kind, x.short = KindSlots, f.MissingSlots
		missing, _, _ := strings.Cut(f.MissingSlots, ";") // what to do follows below
		x.Text = fmt.Sprintf("For %s it has been waiting for slots: it %s.", span(waited), missing)
		for _, tm := range f.TaskManagers {
			x.Text += fmt.Sprintf("\nTaskManager %s on %s has %d of %d slots free.", tm.ID, tm.Host, max(0, tm.Free), tm.Slots)
		}
		x.Advice = "Start more TaskManagers, give them more slots, end another job, or submit this one with a lower -p. It starts by itself as soon as there are enough."
	case Preparing:
		return f.workers(x, KindPrepare, "prepare", "prepared")
	case Starting:
		return f.workers(x, KindStart, "start", "started")
	case Closing:
		return f.workers(x, KindClose, "close", "closed")
	case Running:
		if f.RescaleTo > 0 && !f.Stop {
			return Finding{
				Kind: KindRescale, short: fmt.Sprintf("a checkpoint and the commit of it, to be rescaled to %d slots", f.RescaleTo), Blocking: true,
				Text: fmt.Sprintf("It is being rescaled from %d to %d slots: it takes a checkpoint, commits it, and goes on from it. If the checkpoint fails it goes on as it was.",
					f.RescaleFrom, f.RescaleTo),
			}
		}
		if !f.Stop {
			return Finding{}
		}
		x.Kind, x.short = KindStop, "its last checkpoint and the commit of it, to stop"
		x.Text, x.Since = "A stop was asked for: it takes a last checkpoint, commits it and ends. If the checkpoint fails it goes on.", time.Time{}
	}
	return x
}

func (f Facts) ended() Finding {
	x := Finding{Kind: KindEnded, Text: fmt.Sprintf("It has ended: it is %s.", stateName(f.State))}
	switch f.State {
	case jobv1.JobState_JOB_STATE_FAILED:
		x.Text = "It has ended: it failed."
		x.Advice = "Mend the cause and submit it anew; '--from " + f.JobID + "@last' goes on from its last checkpoint."
	case jobv1.JobState_JOB_STATE_STOPPED:
		x.Advice = "'weir submit --from " + f.JobID + "@last' goes on from where it stopped."
	}
	if f.Unsettled != "" {
		x.Text += "\nTransactions are left open: " + f.Unsettled
	}
	return x
}

func (f Facts) backOff(x Finding) Finding {
	x.Kind = KindBackOff
	left := "now"
	if !f.Until.IsZero() {
		left = "in " + span(max(0, f.Until.Sub(f.Now)))
	}
	if f.Settling {
		x.Kind, x.short = KindSettle, "the next try to commit what is completed, "+left
		x.Text = fmt.Sprintf("It is ending as %s. What its last checkpoint covers is still to be committed, and what came after it to be fenced; the next try begins %s.",
			stateName(f.Target), left)
		if f.Unsettled != "" {
			x.Text += "\nThe last try did not succeed: " + f.Unsettled
		}
		if !f.SettleUntil.IsZero() {
			x.Text += fmt.Sprintf("\nIt is given up in %s; the job ends then with open transactions.", span(max(0, f.SettleUntil.Sub(f.Now))))
		}
		x.Advice = "It needs one connected TaskManager and the brokers of its sinks."
		return x
	}
	x.short = "the next attempt, " + left
	x.Text = fmt.Sprintf("It is in a pause after a failure. Attempt %d begins %s.", f.Attempt+1, left)
	if f.Failure.GetUncounted() {
		x.Text += " What failed is outside of the job, so that this restart does not count towards its limit: it is tried again for as long as that lasts."
	} else if b := f.Budget; b.Max > 0 && b.Used > 0 {
		x.Text += fmt.Sprintf(" It has failed %s within the last %s; with more than %d it fails for good.", times(b.Used), span(b.Window), b.Max)
	}
	if f.Failure != nil {
		x.short += " (" + oneLine(cause(f.Failure)) + ")"
	}
	return x
}

// workers explains a phase in which every worker has to answer.
func (f Facts) workers(x Finding, kind, doing, done string) Finding {
	x.Kind = kind
	waited := f.Now.Sub(f.Since)
	answered := 0
	var late, details []string
	for _, w := range f.Workers {
		if w.Answered {
			answered++
			continue
		}
		if !w.Connected {
			late = append(late, strings.Join(w.Tasks, " ")+" on host "+w.Host)
			details = append(details, fmt.Sprintf("TaskManager %s on %s is out of reach.", w.TaskManager, w.Host))
			continue
		}
		reported := false
		for _, name := range w.Tasks {
			t := f.task(name)
			if t == nil || t.Statistics == nil {
				continue
			}
			reported = true
			if why := t.at(f.Now); why != "" {
				late = append(late, name+" on host "+w.Host)
				details = append(details, fmt.Sprintf("%s %s.", t.where(), why))
			}
		}
		switch {
		case !reported && kind == KindPrepare:
			late = append(late, strings.Join(w.Tasks, " ")+" on host "+w.Host)
			details = append(details, fmt.Sprintf("On %s (%s) no task has reported yet: the binary is being fetched, its process started, the job planned, or the checkpoint's file read.",
				w.Host, w.TaskManager))
		case len(late) == 0:
			late = append(late, strings.Join(w.Tasks, " ")+" on host "+w.Host)
		}
	}
	attempt := fmt.Sprintf("Attempt %d", f.Attempt)
	if f.Settling {
		attempt = fmt.Sprintf("The attempt that commits and fences for the ending job (it is going to be %s)", stateName(f.Target))
	}
	x.short = fmt.Sprintf("tasks to %s, for %s: %s", doing, span(waited), some(late))
	x.Text = fmt.Sprintf("%s has been waiting for its tasks to %s for %s: %d of %d workers have %s.", attempt, doing, span(waited), answered, len(f.Workers), done)
	for _, d := range limit(details) {
		x.Text += "\n" + d
	}
	if !f.Until.IsZero() {
		x.Text += fmt.Sprintf("\nAfter %s more it is given up and tried again.", span(max(0, f.Until.Sub(f.Now))))
	}
	if waited > slowWait {
		x.Advice = "See the logs of the job ('weir logs " + f.JobID + "'), and of the TaskManagers named."
	}
	return x
}

func (f Facts) failedAt() time.Time {
	if f.FailureAt.IsZero() {
		return time.UnixMilli(f.Failure.GetAtMs())
	}
	return f.FailureAt
}

// failure tells of the last failure while it is of interest.
func (f Facts) failure() Finding {
	if f.Failure == nil {
		return Finding{}
	}
	at := f.failedAt()
	ended := f.Phase == Ended
	if ended && f.State != jobv1.JobState_JOB_STATE_FAILED || f.Phase == Running && f.Now.Sub(at) > recently {
		return Finding{}
	}
	x := Finding{Kind: KindFailure, Since: at}
	x.Text = fmt.Sprintf("Attempt %d failed %s ago: %s", f.Failure.GetAttempt(), span(max(0, f.Now.Sub(at))), cause(f.Failure))
	x.Advice = fmt.Sprintf("'weir logs %s --attempt %d' has what its workers wrote, 'weir show %s' all failures.", f.JobID, f.Failure.GetAttempt(), f.JobID)
	return x
}

// normal explains a job that gets on.
func (f Facts) normal() Finding {
	x := Finding{Kind: KindNormal, Since: f.Since}
	var parts []string
	if f.RecordsPerSecond >= 0 {
		parts = append(parts, rate(f.RecordsPerSecond)+" records/s")
	}
	switch {
	case f.Last != nil:
		parts = append(parts, fmt.Sprintf("checkpoint %d completed %s ago in %s", f.Last.ID, span(max(0, f.Now.Sub(f.Last.At))), span(f.Last.Duration)))
	case f.Periodic:
		parts = append(parts, "no checkpoint completed yet")
	default:
		parts = append(parts, "checkpoints are off")
	}
	if f.Lag >= 0 {
		parts = append(parts, fmt.Sprintf("%s records still to read", rate(float64(f.Lag))))
	}
	how := "It runs normally: "
	if f.Failure != nil && f.Now.Sub(f.failedAt()) <= recently && (f.Now.Sub(f.Since) < steady || f.Budget.Used > 1) {
		x.Kind = KindRestarted
		how = fmt.Sprintf("It runs again for %s, after a failure: ", span(max(0, f.Now.Sub(f.Since))))
		if b := f.Budget; b.Used > 1 {
			how = fmt.Sprintf("It runs again for %s, after %d failures within the last %s (with more than %d it fails for good): ",
				span(max(0, f.Now.Sub(f.Since))), b.Used, span(b.Window), b.Max)
		}
	}
	x.Text = how + strings.Join(parts, ", ") + "."
	if f.Periodic && f.Checkpoint == nil && f.Last != nil && f.RecordsPerSecond == 0 && f.Now.Sub(f.Last.At) > 2*f.Interval+slowWait {
		x.Text += "\nNothing has changed since its last checkpoint, so that none is due."
	}
	return x
}
