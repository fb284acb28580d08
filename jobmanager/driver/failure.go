package driver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/restart"
)

const restartClass = workerv1.FailureClass_FAILURE_CLASS_RESTART

// origin says how close to the root a failure is. What a task notices may be the consequence of a neighbour's death.
type origin int8

const (
	// originConsequence: a task has lost the connection to another worker, which most likely ended first and whose report is on its way.
	originConsequence origin = iota - 1

	originTask    // a task reports trouble
	originProcess // a worker process died
	originHost    // a TaskManager is gone
)

// failure is why an attempt ends.
type failure struct {
	class      workerv1.FailureClass
	origin     origin
	task, host string
	worker     string // TaskManager id; empty when no worker is to blame
	message    string
	outputTail string
	lost       []*jobv1.LostOutput
}

func (f *failure) record(attempt uint64) *jobv1.Failure {
	return &jobv1.Failure{
		AtMs: nowMs(), Attempt: attempt, Task: f.task, Host: f.host, Message: f.message, OutputTail: f.outputTail,
		Lost: f.lost,
	}
}

// outranks reports whether f explains old: what a worker reports, or its death, explains passing trouble that another one reported first.
func (f *failure) outranks(old *failure) bool {
	return old.class == restartClass && f.origin > old.origin && f.worker != old.worker
}

func (j *job) onTaskFailed(w *worker, e *workerv1.TaskFailed) {
	f := failure{
		class: e.GetClass(), origin: originTask, host: w.host, worker: w.tm, message: e.GetMessage(), outputTail: e.GetOutputTail(),
		lost: e.GetLost(),
	}
	if f.class == workerv1.FailureClass_FAILURE_CLASS_UNSPECIFIED {
		f.class = restartClass
	}
	if e.GetConsequence() {
		f.origin = originConsequence
	}
	if e.GetVertex() != "" {
		f.task = checkpoint.TaskID{Vertex: e.GetVertex(), Subtask: e.GetSubtask()}.String()
	}
	if f.outputTail == "" {
		f.outputTail = e.GetStack()
	}
	if f.task == "" { // reported by the TaskManager for the whole process
		f.origin = originProcess
	}
	// Trouble of one task while another TaskManager is out of sight is most likely about that one, unless it has only not registered yet.
	if f.class == restartClass && j.phase != phaseTakeover {
		for _, o := range j.att.workers {
			if known, ok := j.tms[o.tm]; o.tm != w.tm && (!ok || !known.Connected) {
				seen := f.task
				if f.origin != originConsequence {
					seen += ": " + f.message
				}
				f.message = fmt.Sprintf("TaskManager %s on %s is not reachable (seen by task %s)", o.tm, o.host, seen)
				f.origin, f.host, f.worker, f.task = originHost, o.host, o.tm, ""
				break
			}
		}
	}
	j.fail(f)
}

func (j *job) onWorkerExited(ev workerExited) {
	e := ev.ev
	if workers := j.undead[e.GetAttempt()]; workers[ev.tm.ID] == ev.tm.Incarnation {
		j.bury(e.GetAttempt(), ev.tm.ID)
	}
	w := j.worker(ev.tm.ID, ev.tm.Incarnation)
	if w == nil || j.att.number != e.GetAttempt() {
		j.stoppedWhenComplete()
		return
	}
	w.ended = true
	switch {
	case j.phase == phaseClosing && e.GetExitCode() == 0 && e.GetSignal() == "":
		w.closed = true // the answer was lost with a broken session
		j.closedWhenComplete()
	case w.closed:
	case j.phase == phaseStopping && e.GetExpected():
	default:
		j.fail(failure{
			class: restartClass, origin: originProcess, host: w.host, worker: w.tm,
			message: exitMessage(w, e), outputTail: e.GetOutputTail(),
		})
	}
	j.stoppedWhenComplete()
}

func exitMessage(w *worker, e *clusterv1.WorkerExited) string {
	how := fmt.Sprintf("with exit code %d", e.GetExitCode())
	if e.GetSignal() != "" {
		how = "by signal " + e.GetSignal()
	}
	msg := fmt.Sprintf("worker process on %s (%s) ended %s", w.host, w.tm, how)
	if words := lastWords(e.GetOutputTail()); words != "" {
		msg += ": " + words
	}
	return msg
}

// lastWords returns the line of a process's last output that tells most of its end: the one with which the Go runtime begins the
// report of a crash, of which the end is stacks and registers, or the last one.
func lastWords(tail string) string {
	lines := strings.Split(strings.TrimSpace(tail), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return line
		}
	}
	return lines[len(lines)-1]
}

// onInterrupted: what was under way between the leader and the TaskManager may be lost. Resumed or lost follows, and an attempt that
// is being deployed waits for it.
func (j *job) onInterrupted(w *worker) {
	switch j.phase {
	case phaseTakeover:
		w.reported = false
	case phaseRunning:
		j.coordinate(checkpoint.Interrupted{Reason: "the session of TaskManager " + w.tm + " broke"})
	}
}

// onResumed repeats what the TaskManager may have missed. It repeats its own reports.
func (j *job) onResumed(w *worker, running []*clusterv1.RunningAttempt) {
	alive := false
	for _, r := range running {
		alive = alive || r.GetJobId() == j.id && r.GetAttempt() == j.att.number
	}
	missed := j.phase == phasePreparing && !w.prepared // the order to start it
	if !alive && !missed && !w.closed && j.phase != phaseTakeover {
		w.ended = true
		j.bury(j.att.number, w.tm)
		j.fail(failure{
			class: restartClass, origin: originProcess, host: w.host, worker: w.tm, message: unseenEnd(w),
		})
		return
	}
	switch j.phase {
	case phaseTakeover:
		j.onReport(w, running)
	case phasePreparing:
		if missed {
			j.startWorker(w)
		}
		if w.replacing && !w.prepared {
			j.command(w.tm, commitRewrittenCommand())
		}
	case phaseStarting:
		if !w.started {
			j.command(w.tm, j.startCommand())
		}
	case phaseRunning:
		j.coordinate(checkpoint.Interrupted{Reason: "the session of TaskManager " + w.tm + " broke"})
		if j.att == nil {
			return
		}
		if n := j.att.aborted; n > 0 {
			j.command(w.tm, abortCommand(n))
		}
		if n := j.att.notified; n > 0 {
			j.command(w.tm, completeCommand(n))
		}
	case phaseClosing:
		j.command(w.tm, &workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}})
	}
}

func unseenEnd(w *worker) string {
	return fmt.Sprintf("worker process on %s (%s) ended while its TaskManager was out of sight", w.host, w.tm)
}

// fail ends the current attempt. The first failure counts, unless a later one explains it.
func (j *job) fail(f failure) {
	if j.att == nil {
		return
	}
	if j.phase == phaseStopping {
		if j.cause != nil && len(j.cause.lost) > 0 {
			j.cause.lost = append(j.cause.lost, f.lost...) // each task tells of its own
		}
		if j.cause != nil && f.outranks(j.cause) {
			if j.cause.origin != originConsequence {
				f.message += "; first seen as: " + j.cause.message
			}
			j.logger.Info("cause found", "class", f.class.String(), "task", f.task, "host", f.host, "reason", f.message, "instead", j.cause.message)
			j.cause = &f
		}
		return
	}
	if j.cause != nil {
		return
	}
	j.cause = &f
	if j.failedAt.IsZero() {
		j.failedAt = time.Now()
	}
	j.logger.Warn("attempt fails", "attempt", j.att.number, "class", f.class.String(), "task", f.task, "host", f.host, "reason", f.message)
	j.m.cfg.Metrics.failures.Inc()
	j.notTakenUp(f.message)
	j.endCoordinator(f.message)
	if j.phase != phaseDone {
		j.stopWorkers(j.afterFailure)
	}
}

// afterFailure decides what follows a failed attempt whose workers are gone.
func (j *job) afterFailure() {
	att, cause := j.att, j.cause
	j.att = nil
	if cause == nil {
		j.proceed()
		return
	}
	if att.settle {
		j.settlingFailed(cause)
		return
	}
	if j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING {
		j.proceed()
		return
	}
	f := cause.record(att.number)
	if !j.rec.GetPrepared() && restart.NeverWorked(cause.class) && cause.origin != originHost {
		// Nobody has seen the job work: an address, a topic or a setting is wrong, and whoever submitted it is waiting for the answer.
		f.Message = cause.message + " (the job has never been prepared, so it is not tried again; mend the cause and submit it anew)"
		j.giveUp(f)
		return
	}
	host := cause.origin == originHost
	policy, now := restart.PolicyOf(j.rec.GetGraph()), time.Now()
	d := restart.Decide(policy, j.failures, cause.class, host, now, rand.Float64())
	if d.Action != restart.Restart {
		f.Message = cause.message + " (" + d.Reason + ")"
		j.giveUp(f)
		return
	}
	f.Uncounted = !d.Counted
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_FailAttempt{FailAttempt: &raftv1.FailAttempt{
		JobId: j.id, Attempt: att.number, Failure: f, Counted: d.Counted, Host: host,
	}}})
	if !ok {
		return
	}
	if res.Err != nil {
		j.proceed()
		return
	}
	faultpoint.Hit(faultpoint.FailureLogged)
	j.failures = restart.Remember(policy, j.failures, restart.Former{At: now, Counted: d.Counted, Host: host})
	j.m.cfg.Metrics.restarts.Inc()
	j.logger.Info("job restarts", "after", d.Delay)
	if d.Delay <= 0 {
		j.proceed()
		return
	}
	j.enter(phaseBackoff, d.Delay)
}

// giveUp fails the job for good.
func (j *job) giveUp(f *jobv1.Failure) {
	j.logger.Error("job fails", "reason", f.GetMessage(), "task", f.GetTask(), "host", f.GetHost())
	_, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{
		JobId: j.id, Target: jobv1.JobState_JOB_STATE_FAILED, Failure: f,
	}}})
	if ok {
		j.proceed()
	}
}
