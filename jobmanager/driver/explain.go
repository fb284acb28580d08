package driver

import (
	"cmp"
	"slices"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/explain"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/restart"
)

// phases are the driver's phases as people are told of them.
var phases = map[phase]explain.Phase{
	phaseGrace: explain.Returning, phaseTakeover: explain.Returning, phaseStopping: explain.Stopping, phaseBackoff: explain.BackOff,
	phaseSlots: explain.Slots, phasePreparing: explain.Preparing, phaseStarting: explain.Starting, phaseRunning: explain.Running,
	phaseClosing: explain.Closing, phaseDone: explain.Ended,
}

// waitingFor says what the job waits for; empty while it gets on. It is the driver's own answer, for its log and its errors.
func (j *job) waitingFor() string {
	f := j.facts()
	j.status.addTo(&f)
	return explain.Explain(f).Waiting()
}

// slowness is the class of a failure that consists in something taking too long: tasks that wait for another system cannot be faster than it.
func (j *job) slowness() workerv1.FailureClass {
	f := j.facts()
	j.status.addTo(&f)
	if f.WaitsOutside() {
		return workerv1.FailureClass_FAILURE_CLASS_UNAVAILABLE
	}
	return restartClass
}

// facts are what the driver knows of its job.
func (j *job) facts() explain.Facts {
	f := recorded(j.rec)
	f.Phase, f.Since, f.Until = phases[j.phase], j.since, j.deadline
	f.SettleUntil, f.Unsettled = j.settleUntil, cmp.Or(j.unsettled, f.Unsettled)
	f.Absent, f.Undead = nil, nil
	for _, failed := range j.failures {
		f.FailureAt = failed.At
		if failed.Counted && f.Now.Sub(failed.At) <= f.Budget.Window {
			f.Budget.Used++
		}
	}
	switch j.phase {
	case phaseGrace, phaseTakeover:
		f.Absent = j.absent()
	case phaseStopping:
		f.Undead = j.awaited()
	case phaseSlots:
		f.MissingSlots = j.m.slots.missing(j.rec)
		for _, tm := range j.m.slots.all() {
			f.TaskManagers = append(f.TaskManagers, explain.TaskManager{ID: tm.ID, Host: tm.Host, Slots: j.tms[tm.ID].Slots, Free: tm.Free})
		}
	}
	if j.att == nil {
		return f
	}
	for _, w := range j.att.workers {
		x := explain.Worker{TaskManager: w.tm, Host: w.host, Connected: j.tms[w.tm].Connected}
		switch j.phase {
		case phasePreparing:
			x.Answered = w.prepared
		case phaseStarting:
			x.Answered = w.started
		case phaseClosing:
			x.Answered = w.closed
		}
		for _, t := range w.tasks {
			id := checkpoint.TaskID{Vertex: t.GetVertex(), Subtask: t.GetSubtask()}
			x.Tasks = append(x.Tasks, id.String())
			f.Tasks = append(f.Tasks, explain.Task{Name: id.String(), TaskManager: w.tm, Host: w.host})
		}
		f.Workers = append(f.Workers, x)
	}
	if c := j.att.coordinator; c != nil {
		coordinated(&f, c.Progress(), len(j.att.tasks), ms(j.rec.GetGraph().GetCheckpoints().GetTimeoutMs()))
	}
	return f
}

// recorded are the facts that the log knows.
func recorded(rec *raftv1.JobRecord) explain.Facts {
	policy := restart.PolicyOf(rec.GetGraph())
	f := explain.Facts{
		Now: time.Now(), JobID: rec.GetId(), State: rec.GetState(), Target: rec.GetTarget(), Attempt: rec.GetAttempt(), Restarts: rec.GetRestarts(),
		Stop: rec.GetStopRequestId() != "", Settling: rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING, Unsettled: rec.GetUnsettled(),
		Periodic: rec.GetGraph().GetCheckpoints().GetEnabled(), Interval: ms(rec.GetGraph().GetCheckpoints().GetIntervalMs()),
		Budget: explain.Budget{Max: policy.MaxRestarts, Window: policy.Window}, Lag: -1,
	}
	if failures := rec.GetFailures(); len(failures) > 0 {
		f.Failure = failures[len(failures)-1]
	}
	f.Lost = rec.GetLost()
	if x := rec.GetRescale(); x != nil {
		f.RescaleFrom, f.RescaleTo = fsm.Slots(rec.GetGraph()), fsm.Slots(x.GetGraph())
	}
	if cp, ok := fsm.LastCheckpoint(rec); ok {
		f.Kept = cp.GetId()
		took := ms(cp.GetDurationMs())
		f.Last = &explain.Completed{ID: cp.GetId(), At: time.UnixMilli(cp.GetTriggeredAtMs()).Add(took), Duration: took}
	}
	return f
}

func coordinated(f *explain.Facts, p checkpoint.Progress, tasks int, timeout time.Duration) {
	f.FailedCheckpoints, f.CheckpointFailure = p.Failures, p.Reason
	if f.Last != nil && p.Newest == f.Last.ID {
		f.Last.At = p.NewestAt // by a clock that does not jump
	}
	if p.Checkpoint > 0 {
		f.Checkpoint = &explain.Checkpoint{ID: p.Checkpoint, Since: p.Since, Timeout: timeout, Tasks: tasks}
		switch {
		case p.Writing:
			f.Checkpoint.Stage = explain.Metadata
		case p.Proposed:
			f.Checkpoint.Stage = explain.Log
		}
		for _, t := range p.Missing {
			f.Checkpoint.Missing = append(f.Checkpoint.Missing, t.String())
		}
	}
	if p.Uncommitted > 0 {
		f.Commit = &explain.Commit{Checkpoint: p.Uncommitted, Since: p.Completed, Workers: p.Workers}
	}
}

// addTo adds what the tasks have reported.
func (s *status) addTo(f *explain.Facts) {
	s.mu.Lock()
	for i := range f.Tasks {
		t := &f.Tasks[i]
		if r, ok := s.reports[t.Name]; ok {
			t.Statistics, t.At, t.Quiet, t.PerSecond = r.statistics, r.at, r.quiet, r.perSecond
		}
	}
	s.mu.Unlock()
	figures := s.figures()
	f.RecordsPerSecond, f.Lag = figures.RecordsPerSecond, figures.LagRecords
}

// Explain explains a job by its record alone: one that has ended, or whose driver is busy with the log.
func Explain(rec *raftv1.JobRecord) explain.Explanation {
	f := recorded(rec)
	if !fsm.Terminal(rec.GetState()) {
		f.LogBusy = true
	}
	return explain.Explain(f)
}

// all returns the connected TaskManagers with their free slots, by id.
func (s *slots) all() []taskManagerSlots {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []taskManagerSlots
	for _, tm := range s.free() {
		out = append(out, taskManagerSlots{tm.ID, tm.Host, tm.Free})
	}
	slices.SortFunc(out, func(a, b taskManagerSlots) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

type taskManagerSlots struct {
	ID, Host string
	Free     int
}
