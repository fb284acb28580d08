package driver

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/explain"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/jobmanager/restart"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

// phase is what a driver is doing.
type phase uint8

const (
	phaseGrace    phase = iota + 1 // waits for TaskManagers to come back after a leader change, to stop what they run
	phaseTakeover                  // waits for TaskManagers to come back after a leader change, to go on with what they run
	phaseStopping                  // waits for the workers of an attempt to die
	phaseBackoff                   // waits before the next attempt
	phaseSlots                     // waits for slots
	phasePreparing
	phaseStarting
	phaseRunning
	phaseClosing // waits for the workers to close cleanly
	phaseDone
)

// job drives one job. All fields but box and status belong to its goroutine.
type job struct {
	m      *Manager
	id     string
	name   string
	box    *mailbox
	status *status
	covers *coverage
	gone   chan struct{} // closed when the driver has ended
	logger *slog.Logger
	ctx    context.Context //nolint:containedctx // of the leadership, which bounds everything the driver does; set by run

	rec *raftv1.JobRecord
	att *attempt // the attempt being deployed or running; nil between attempts
	tms map[string]registry.TaskManager
	// undead holds, for each attempt of which workers may live, TaskManager id → incarnation.
	undead map[uint64]map[string]string

	phase    phase
	since    time.Time
	deadline time.Time // of the phase; zero without one
	warned   bool
	after    func() // what follows phaseStopping

	cause       *failure         // why the current attempt ends; the first one counts
	failures    []restart.Former // under this leadership: a former leader's clock is another one
	failedAt    time.Time        // when the job last stopped running, for the recovery time
	settleUntil time.Time
	settleTries int
	unsettled   string              // why the last settling attempt did not succeed
	finished    []*jobv1.Checkpoint // those of the last attempt that had any, with their ages at finishedAt
	finishedAt  time.Time
	closed      bool // every worker of the last attempt has closed cleanly

	stops      []chan<- error // callers waiting for the outcome of the stop
	savepoints map[string]*savepointCall
	// takingUp is true from a leader change until the job runs or fails to: a savepoint asked for meanwhile may be the repetition of
	// one that the former leader was at, and waits.
	takingUp bool

	// rescales are callers waiting for the outcome of a rescale, by request id; reserving tells that slots may be reserved for one.
	// rescaleUntil is when a new leader gives one up for want of slots; zero when it does not wait.
	rescales     map[string][]chan<- rescaleReply
	reserving    bool
	rescaleUntil time.Time
	// follower is of a job whose parallelism the cluster chooses, looked after at followAt; planning while its graph is made.
	follower scheduler.Follower
	followAt time.Time
	planning bool

	// usedID is the newest checkpoint id used, and reservedID the end of the ids that this leadership has reserved; 0 before.
	usedID, reservedID uint64

	clean *cleaner

	inquiries   map[uint64]*inquiry
	lastInquiry uint64
	fenceAt     time.Time // when former attempts are fenced again
}

// savepointCall is a savepoint asked for by request id and not answered yet.
type savepointCall struct {
	dir     string
	replies []chan<- savepointReply
}

func newJob(m *Manager, rec *raftv1.JobRecord) *job {
	logger := m.cfg.Logger.With("job", rec.GetId(), "name", rec.GetName())
	j := &job{
		m: m, id: rec.GetId(), name: rec.GetName(), box: newMailbox(), status: newStatus(), covers: newCoverage(time.Now()), gone: make(chan struct{}), logger: logger, rec: rec,
		tms: make(map[string]registry.TaskManager), undead: make(map[uint64]map[string]string),
		savepoints: make(map[string]*savepointCall), rescales: make(map[string][]chan<- rescaleReply),
		follower: scheduler.Follower{Settle: m.cfg.AutoSettle},
	}
	if adoptable(rec) {
		j.status.live.Store(rec.GetAttempt()) // before a TaskManager can ask
	}
	return j
}

// run drives the job until it has ended or ctx, the leadership, has.
func (j *job) run(ctx context.Context) {
	j.ctx = ctx
	j.clean = newCleaner(j.m, j.rec, j.box, j.logger)
	defer j.clean.stop()
	defer j.abandon()
	for _, tm := range j.m.sessions.TaskManagers() {
		j.tms[tm.ID] = tm
	}
	j.begin()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for j.phase != phaseDone && ctx.Err() == nil {
		timer.Reset(j.untilDeadline())
		select {
		case <-ctx.Done():
		case <-timer.C:
			j.tick()
		case <-j.box.ready:
			for _, ev := range j.box.take() {
				if j.phase == phaseDone || ctx.Err() != nil {
					refuse(ev)
					continue
				}
				j.handle(ev)
			}
		}
	}
}

// abandon answers callers that wait when the driver ends.
func (j *job) abandon() {
	for _, ev := range j.box.take() {
		refuse(ev)
	}
	j.endInquiries("the job has ended, or this JobManager leads no more")
	for _, c := range j.stops {
		c <- errLeadershipEnded
	}
	for _, call := range j.savepoints {
		for _, c := range call.replies {
			c <- savepointReply{err: errLeadershipEnded}
		}
	}
	for _, replies := range j.rescales {
		for _, c := range replies {
			c <- rescaleReply{err: errLeadershipEnded}
		}
	}
	j.stops, j.savepoints, j.rescales = nil, nil, nil
}

// begin takes the job up where the log left it.
func (j *job) begin() {
	if !j.unpinAll() {
		return
	}
	if j.rec.GetAttempt() == 0 {
		j.proceed()
		return
	}
	for _, former := range j.rec.GetUnfencedWorkers() {
		workers := make(map[string]string)
		for _, w := range former.GetWorkers() {
			workers[w.GetTaskmanagerId()] = w.GetIncarnation()
		}
		j.undead[former.GetAttempt()] = workers
	}
	workers := make(map[string]string)
	for _, p := range j.rec.GetPlacements() {
		workers[p.GetTaskmanagerId()] = p.GetIncarnation()
	}
	j.undead[j.rec.GetAttempt()] = workers
	if adoptable(j.rec) {
		j.takeOver()
		return
	}
	j.failedAt, j.takingUp = time.Now(), true
	j.enter(phaseGrace, min(j.m.cfg.RegisterGrace, stopGrace))
	j.endGraceWhenComplete()
}

// endGraceWhenComplete goes on once every TaskManager of the former attempt is back or proven gone.
func (j *job) endGraceWhenComplete() {
	if j.phase != phaseGrace {
		return
	}
	for tm := range j.undead[j.rec.GetAttempt()] {
		if known, ok := j.tms[tm]; !ok || !known.Connected {
			return
		}
	}
	j.stopWorkers(j.proceed)
}

// proceed decides about the next step when no worker is running.
func (j *job) proceed() {
	j.att = nil
	switch {
	case fsm.Terminal(j.rec.GetState()):
		j.finish()
	case j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING:
		j.settle()
	case stopDone(j.rec):
		j.logger.Info("savepoint of the stop is there, the job ends with it")
		if err := j.end(jobv1.JobState_JOB_STATE_STOPPED, j.rec.GetStopRequestId(), nil, "stopped"); err != nil && j.phase != phaseDone {
			j.enter(phaseBackoff, resultRetry)
		}
	default:
		j.waitForSlots()
	}
}

// stopDone reports whether the savepoint of a stop was exported and only the end of the job is missing: sources have emitted nothing
// since, so the last checkpoint is the savepoint's.
func stopDone(rec *raftv1.JobRecord) bool {
	if rec.GetStopRequestId() == "" {
		return false
	}
	sp := savepointByRequest(rec, rec.GetStopRequestId())
	return sp != nil && sp.GetError() == ""
}

func (j *job) enter(p phase, timeout time.Duration) {
	j.phase, j.since, j.warned = p, time.Now(), false
	j.deadline = time.Time{}
	if timeout > 0 {
		j.deadline = j.since.Add(timeout)
	} else if p == phaseGrace || p == phaseTakeover {
		j.deadline = j.since
	}
}

// untilDeadline returns how long the driver may sleep.
func (j *job) untilDeadline() time.Duration {
	now := time.Now()
	d := time.Hour
	sooner := func(at time.Time) {
		if !at.IsZero() {
			d = min(d, max(0, at.Sub(now)))
		}
	}
	sooner(j.deadline)
	sooner(j.warnAt())
	if j.att != nil && j.att.coordinator != nil && j.phase == phaseRunning {
		if at, ok := j.att.coordinator.Deadline(); ok {
			sooner(at)
		}
	}
	sooner(j.clean.dueAt())
	sooner(j.inquiriesDueAt())
	sooner(j.fenceDueAt())
	sooner(j.rescaleUntil)
	if j.rec.GetAutoParallelism() {
		d = min(d, max(0, j.followAt.Sub(now)))
	}
	return d
}

// warnAt is when the present wait is worth a line in the log.
func (j *job) warnAt() time.Time {
	switch {
	case j.warned:
	case j.phase == phasePreparing, j.phase == phaseStarting:
		return j.since.Add(j.m.cfg.PrepareWarning)
	case j.phase == phaseSlots && j.m.cfg.SlotsWait > 0:
		return j.since.Add(j.m.cfg.SlotsWait)
	}
	return time.Time{}
}

func (j *job) tick() {
	now := time.Now()
	if at := j.warnAt(); !at.IsZero() && !now.Before(at) {
		j.warned = true
		if j.phase == phaseSlots {
			j.notTakenUp(j.waitingFor())
		}
		j.logger.Warn("job waits", "for", j.waitingFor(), "since", now.Sub(j.since).Round(time.Second))
	}
	if j.att != nil && j.att.coordinator != nil && j.phase == phaseRunning {
		if at, ok := j.att.coordinator.Deadline(); ok && !now.Before(at) {
			j.coordinate(tickEvent)
		}
	}
	j.clean.tick(now, j.rec)
	j.tickInquiries(now)
	j.fenceAgain(now)
	if j.rec.GetAutoParallelism() {
		j.follow(now)
	}
	if !j.rescaleUntil.IsZero() && !now.Before(j.rescaleUntil) {
		j.resumeRescale()
		j.rescaleUntil = time.Time{} // it has been carried out, given up, or there is none
	}
	if j.deadline.IsZero() || now.Before(j.deadline) {
		return
	}
	j.deadline = time.Time{}
	switch j.phase {
	case phaseGrace:
		j.stopWorkers(j.proceed)
	case phaseTakeover:
		j.takeoverFailed()
	case phaseStopping:
		j.logger.Warn("workers did not report their end in time", "workers", j.awaited())
		j.stopped()
	case phaseBackoff:
		j.proceed()
	case phasePreparing, phaseStarting:
		j.fail(failure{class: j.slowness(), message: "deployment timed out: " + j.waitingFor()})
	case phaseClosing:
		j.logger.Warn("workers did not close in time", "workers", j.awaited())
		j.stopWorkers(j.proceed)
	}
}

func (j *job) handle(ev any) {
	switch ev := ev.(type) {
	case tmChanged:
		j.onTaskManager(ev)
	case workerEvent:
		j.onWorkerEvent(ev)
	case workerExited:
		j.onWorkerExited(ev)
	case slotsGranted:
		if j.phase != phaseSlots || len(ev.placements) != int(fsm.Slots(fsm.Next(j.rec))) { // or asked for before a rescale
			j.m.slots.release(j.id)
			return
		}
		j.deploy(ev.placements, false)
	case cancelRequest:
		ev.reply <- j.cancel(ev.requestID)
	case stopRequest:
		j.requestStop(ev)
	case savepointRequest:
		j.requestSavepoint(ev)
	case rescaleRequest:
		j.requestRescale(ev)
	case coordinatorEvent:
		if j.att != nil && j.att.number == ev.attempt && j.att.coordinator != nil {
			j.coordinate(ev.ev)
		}
	case planned:
		j.onPlanned(ev)
	case exported:
		j.onExported(ev)
	case retainedRead:
		j.onRetainedRead(ev)
	case cleaned:
		j.onCleaned(ev)
	case transactionsRequest:
		j.onTransactionsRequest(ev)
	case statusRequest:
		ev.reply <- j.progress(ev.held)
	}
}

func (j *job) progress(held []*jobv1.HeldOutput) Progress {
	facts := j.facts()
	facts.Held = held
	j.status.addTo(&facts)
	p := Progress{Explanation: explain.Explain(facts)}
	if j.att != nil && j.att.coordinator != nil {
		p.Checkpoints = j.att.coordinator.Statistics(time.Now())
	} else {
		p.Checkpoints = aged(j.finished, time.Since(j.finishedAt))
	}
	return p
}

// aged returns checkpoints as they are after some more time.
func aged(list []*jobv1.Checkpoint, by time.Duration) []*jobv1.Checkpoint {
	var out []*jobv1.Checkpoint
	for _, cp := range list {
		cp = proto.CloneOf(cp)
		if cp.AgeMs != nil {
			*cp.AgeMs += uint64(by.Milliseconds())
		}
		out = append(out, cp)
	}
	return out
}

// refuse answers a request that comes when the driver does nothing more.
func refuse(ev any) {
	switch ev := ev.(type) {
	case cancelRequest:
		ev.reply <- errLeadershipEnded
	case stopRequest:
		ev.reply <- errLeadershipEnded
	case savepointRequest:
		ev.reply <- savepointReply{err: errLeadershipEnded}
	case rescaleRequest:
		ev.reply <- rescaleReply{err: errLeadershipEnded}
	case transactionsRequest:
		ev.reply <- Answers{Problems: []string{"the job is not driven here any more; ask again"}}
	case statusRequest:
		ev.reply <- Progress{}
	}
}

// onTaskManager follows what happens to TaskManagers.
func (j *job) onTaskManager(ev tmChanged) {
	id := ev.tm.ID
	switch ev.change {
	case joined, resumed:
		j.tms[id] = ev.tm
		j.buryMissing(ev.tm, ev.running)
		j.startedAnew(id, ev.tm.Incarnation)
	case interrupted, leaving:
		j.tms[id] = ev.tm
	case lost:
		delete(j.tms, id)
		if ev.dead {
			j.buryAll(id, ev.tm.Incarnation)
		}
	}
	w := j.worker(id, ev.tm.Incarnation)
	if w != nil && (ev.change == leaving && j.phase != phaseClosing || j.phase == phaseStopping && (ev.change == interrupted || ev.change == lost)) {
		j.failHost(w, ev)
	}
	if w != nil && !w.ended {
		switch ev.change {
		case interrupted:
			j.onInterrupted(w)
		case joined, resumed: // joined when a former leader has begun the attempt
			j.onResumed(w, ev.running)
		case lost:
			w.ended = true
			j.failHost(w, ev)
		}
	}
	switch j.phase {
	case phaseRunning:
		if !j.rescaleUntil.IsZero() {
			j.resumeRescale()
		}
	case phaseGrace:
		j.endGraceWhenComplete()
	case phaseTakeover:
		j.takenOver()
	case phaseStopping:
		j.stoppedWhenComplete()
	}
}

// failHost ends the attempt because a TaskManager went away.
func (j *job) failHost(w *worker, ev tmChanged) {
	f := failure{class: restartClass, origin: originHost, host: w.host, worker: w.tm}
	name := "TaskManager " + w.tm + " on " + w.host
	switch {
	case ev.change == leaving:
		f.message = name + " shuts down"
	case ev.change == lost && j.phase != phaseStopping:
		f.message = name + " is lost: " + ev.reason
	default:
		f.message = name + " is not reachable"
	}
	j.fail(f)
}

// buryMissing notes that workers which their TaskManager does not report are dead.
func (j *job) buryMissing(tm registry.TaskManager, running []*clusterv1.RunningAttempt) {
	alive := make(map[uint64]bool)
	for _, r := range running {
		if r.GetJobId() == j.id {
			alive[r.GetAttempt()] = true
		}
	}
	for attempt, workers := range j.undead {
		// The order to start the worker of an attempt being deployed may follow the report.
		deploying := j.att != nil && j.att.number == attempt && j.phase != phaseStopping && j.phase != phaseTakeover
		if inc, ok := workers[tm.ID]; ok && (inc != tm.Incarnation || !alive[attempt] && !deploying) {
			j.bury(attempt, tm.ID)
		}
	}
}

// buryAll notes that every worker of one incarnation of a TaskManager is dead.
func (j *job) buryAll(tmID, incarnation string) {
	for attempt, workers := range j.undead {
		if workers[tmID] == incarnation {
			j.bury(attempt, tmID)
		}
	}
}

func (j *job) bury(attempt uint64, tmID string) {
	delete(j.undead[attempt], tmID)
	if len(j.undead[attempt]) == 0 && j.att != nil && attempt != j.att.number {
		j.fenceAt = time.Now() // for the last time
	}
}

// command sends a command to one worker of the current attempt. A failure is the session's, of which the driver is told.
func (j *job) command(tmID string, cmd *workerv1.Command) {
	if j.ctx.Err() != nil || j.att == nil {
		return
	}
	_ = j.m.sessions.Send(tmID, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_WorkerCommand{
		WorkerCommand: &clusterv1.WorkerCommand{JobId: j.id, Attempt: j.att.number, Command: cmd},
	}})
}

// commandAll sends a command to every worker of the current attempt that lives and is wanted.
func (j *job) commandAll(cmd *workerv1.Command, wanted func(*worker) bool) {
	for _, w := range j.living(wanted) {
		j.command(w.tm, cmd)
	}
}

// living lists the workers of the current attempt that live and are wanted.
func (j *job) living(wanted func(*worker) bool) (out []*worker) {
	if j.att == nil {
		return nil
	}
	for _, w := range j.att.workers {
		if !w.ended && (wanted == nil || wanted(w)) {
			out = append(out, w)
		}
	}
	return out
}
