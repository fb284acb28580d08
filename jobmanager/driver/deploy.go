package driver

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// stopWorkers stops every worker of the job that may live, and goes on with after when they are dead or have had their time.
func (j *job) stopWorkers(after func()) {
	j.after = after
	j.m.slots.withdraw(j.id)
	j.status.live.Store(0)
	j.endInquiries("their attempt has ended")
	if j.att != nil {
		for _, w := range j.att.workers {
			w.ended = true
		}
	}
	for _, attempt := range slices.Sorted(maps.Keys(j.undead)) {
		for _, tm := range slices.Sorted(maps.Keys(j.undead[attempt])) {
			if known, ok := j.tms[tm]; ok && known.Incarnation == j.undead[attempt][tm] && j.ctx.Err() == nil {
				_ = j.m.sessions.Send(tm, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_StopWorker{
					StopWorker: &clusterv1.StopWorker{
						JobId: j.id, Attempt: attempt, DeadlineMs: uint64(j.m.cfg.CancelDeadline.Milliseconds()),
					},
				}})
			}
		}
	}
	j.enter(phaseStopping, j.m.cfg.CancelDeadline+stopSlack)
	j.stoppedWhenComplete()
}

// stoppedWhenComplete goes on when no worker is left on a TaskManager that could report its end.
func (j *job) stoppedWhenComplete() {
	if j.phase != phaseStopping {
		return
	}
	if len(j.awaited()) == 0 {
		j.stopped()
	}
}

func (j *job) stopped() {
	j.m.slots.release(j.id)
	after := j.after
	j.after = nil
	j.phase = phaseBackoff // until after says otherwise
	j.deadline = time.Time{}
	after()
}

// awaited names the workers of which a TaskManager can still report the end.
func (j *job) awaited() []string {
	var names []string
	for attempt, workers := range j.undead {
		for tm, incarnation := range workers {
			if known, ok := j.tms[tm]; ok && known.Connected && known.Incarnation == incarnation {
				names = append(names, fmt.Sprintf("%s (attempt %d)", tm, attempt))
			}
		}
	}
	slices.Sort(names)
	return names
}

func (j *job) waitForSlots() {
	if placements := j.m.slots.claim(j.id); placements != nil && j.rec.GetRescale() != nil {
		j.deploy(placements, false)
		return
	}
	if x := j.rec.GetRescale(); x != nil {
		if missing := j.m.slots.offered(j.id, x.GetGraph()); missing != "" && !j.rescaleFailed("there are not enough slots any more: the job "+missing) {
			return
		}
	}
	j.enter(phaseSlots, 0)
	j.followAt = time.Time{}
	j.follower.Again(j.since)
	j.m.slots.request(j.rec, j.box)
}

// deploy begins an attempt on its placements: deployment phase one.
func (j *job) deploy(placements []*raftv1.Placement, settle bool) {
	token := make([]byte, 16)
	_, _ = rand.Read(token)
	number := j.rec.GetAttempt() + 1
	cmd := &raftv1.NewAttempt{
		JobId: j.id, Attempt: number, Placements: placements, Token: hex.EncodeToString(token), SettleOnly: settle, AtMs: nowMs(),
	}
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_NewAttempt{NewAttempt: cmd}})
	if !ok {
		return
	}
	if res.Err != nil && (j.rec.GetAttempt() != number || j.rec.GetToken() != cmd.Token) {
		j.logger.Info("attempt not begun", "attempt", number, "reason", res.Err)
		j.m.slots.release(j.id)
		if errors.Is(res.Err, fsm.ErrStaleAttempt) || errors.Is(res.Err, fsm.ErrJobEnding) || errors.Is(res.Err, fsm.ErrJobEnded) {
			j.proceed()
			return
		}
		j.enter(phaseBackoff, resultRetry)
		return
	}
	faultpoint.Hit(faultpoint.AttemptLogged)
	j.cause, j.closed = nil, false
	j.att = newAttempt(j.rec, settle)
	j.logger.Info("attempt begins", "attempt", number, "settle_only", settle, "workers", len(j.att.workers),
		"restore", j.rec.GetRestore().GetCheckpoint())
	workers := make(map[string]string)
	for _, w := range j.att.workers {
		workers[w.tm] = w.incarnation
	}
	j.undead[number] = workers
	j.status.begin(j.rec, j.att)
	if !settle {
		since := j.failedAt
		if since.IsZero() {
			since = j.since
		}
		j.status.restoreBegins(number, j.rec.GetRestore().GetCheckpoint(), since)
	}
	j.enter(phasePreparing, j.prepareTimeout())
	for _, w := range j.att.workers {
		if j.phase != phasePreparing {
			return
		}
		j.startWorker(w)
		faultpoint.Hit(faultpoint.WorkerOrdered)
	}
}

// startWorker orders a worker. Without a session the driver learns from what follows, resumed or lost, whether to order it again.
func (j *job) startWorker(w *worker) {
	known, ok := j.tms[w.tm]
	left := ok && (known.Incarnation != w.incarnation || known.Leaving)
	if !left {
		err := j.m.sessions.Send(w.tm, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_StartWorker{
			StartWorker: &clusterv1.StartWorker{
				ArtifactSha256: j.rec.GetArtifactSha256(), Args: j.rec.GetArgs(), Prepare: j.prepareCommand(w),
			},
		}})
		// The session may be ahead of what the driver was told: one that it does not know may be new, or lost already.
		left = err != nil && !ok
	}
	if left {
		j.bury(j.att.number, w.tm)
		w.ended = true
		j.fail(failure{
			class: restartClass, origin: originHost, host: w.host, worker: w.tm,
			message: fmt.Sprintf("TaskManager %s on %s left before the attempt was deployed", w.tm, w.host),
		})
	}
}

func (j *job) prepareCommand(w *worker) *workerv1.Prepare {
	restore := j.rec.GetRestore()
	if j.att.settle {
		restore = lossy(restore)
	}
	return &workerv1.Prepare{
		ClusterId: j.m.cfg.ClusterID, JobId: j.id, JobName: j.rec.GetName(), Attempt: j.att.number,
		Fingerprint: j.rec.GetGraph().GetFingerprint(), Parallelism: j.rec.GetParallelism(), Tasks: w.tasks,
		Restore: restore, Token: j.rec.GetToken(), BindHost: w.host, AdvertiseHost: w.host,
		SettleOnly: j.att.settle, OperatorParallelism: j.rec.GetOperatorParallelism(),
	}
}

func (j *job) onWorkerEvent(ev workerEvent) {
	if j.att == nil || ev.ev.GetAttempt() != j.att.number {
		return
	}
	w := j.worker(ev.tm.ID, ev.tm.Incarnation)
	if w == nil {
		return
	}
	if failed := ev.ev.GetEvent().GetTaskFailed(); failed != nil {
		j.onTaskFailed(w, failed)
		return
	}
	if w.ended {
		return
	}
	switch e := ev.ev.GetEvent().GetEvent().(type) {
	case *workerv1.Event_Prepared:
		w.prepared, w.dataAddress, w.protocol, w.lost = true, e.Prepared.GetDataAddress(), e.Prepared.GetProtocolMax(), e.Prepared.GetLost()
		if j.phase == phasePreparing && j.att.every(func(w *worker) bool { return w.prepared }) {
			j.status.restoreReaches(j.att.number, allPrepared)
			j.start()
		}
	case *workerv1.Event_Restored:
		j.status.restored(j.att.number, w.tm, e.Restored)
	case *workerv1.Event_Rewritten:
		j.onRewritten(w, e.Rewritten)
	case *workerv1.Event_Started:
		w.started = true
		j.startedWhenComplete()
	case *workerv1.Event_TransactionsDone:
		j.onTransactionsDone(w, e.TransactionsDone)
	case *workerv1.Event_Closed:
		w.closed = true
		j.closedWhenComplete()
	default:
		j.onCheckpointEvent(w, ev.ev.GetEvent())
	}
}

// onRewritten puts what a worker has written again in the place of lost transactions into the log, and lets the worker commit it then. The
// entry comes first: an attempt that follows commits the same transactions, or writes again what this one may not commit any more.
func (j *job) onRewritten(w *worker, e *workerv1.Rewritten) {
	if j.phase != phasePreparing || w.prepared {
		return
	}
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_ReplaceTransactions{ReplaceTransactions: &raftv1.ReplaceTransactions{
		JobId: j.id, Attempt: j.att.number, Checkpoint: j.rec.GetRestore().GetCheckpoint(), Replacements: e.GetReplacements(),
	}}})
	if !ok {
		return
	}
	if res.Err != nil {
		j.fail(failure{class: restartClass, host: w.host, worker: w.tm, message: "what was written again could not be put in the place of lost transactions: " + res.Err.Error()})
		return
	}
	faultpoint.Hit(faultpoint.ReplacementLogged)
	for _, r := range e.GetReplacements() {
		j.logger.Warn("lost output is written again from what is kept", "sink", r.GetUid(), "checkpoint", j.rec.GetRestore().GetCheckpoint(), "attempt", j.att.number)
	}
	w.replacing = true
	j.command(w.tm, commitRewrittenCommand())
}

func commitRewrittenCommand() *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_CommitRewritten{CommitRewritten: &workerv1.CommitRewritten{}}}
}

// start is deployment phase two: the log says that the attempt goes, then the workers are told.
func (j *job) start() {
	var recovery time.Duration
	if !j.failedAt.IsZero() {
		recovery = time.Since(j.failedAt)
	}
	number := j.att.number
	if !j.recordLosses() {
		return
	}
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_StartAttempt{StartAttempt: &raftv1.StartAttempt{
		JobId: j.id, Attempt: number, RecoveryMs: uint64(recovery.Milliseconds()),
	}}})
	if !ok {
		return
	}
	if res.Err != nil {
		j.fail(failure{class: restartClass, message: "the attempt could not be started: " + res.Err.Error()})
		return
	}
	faultpoint.Hit(faultpoint.StartLogged)
	for _, f := range j.rec.GetUnfenced() {
		if workers, known := j.undead[f.GetAttempt()]; known && len(workers) == 0 {
			j.att.fencing = append(j.att.fencing, f.GetAttempt())
		}
	}
	j.enter(phaseStarting, j.prepareTimeout())
	command := j.startCommand()
	for _, w := range j.living(nil) {
		j.command(w.tm, command)
		faultpoint.Hit(faultpoint.StartSent)
	}
}

func (j *job) startedWhenComplete() {
	if j.phase == phaseStarting && j.att.every(func(w *worker) bool { return w.started }) {
		j.running()
	}
}

func (j *job) startCommand() *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{
		Workers: j.att.addresses(), Addresses: j.att.taskAddresses(), Fence: j.rec.GetUnfenced(),
	}}}
}

// running begins when every worker has started.
func (j *job) running() {
	faultpoint.Hit(faultpoint.AllStarted)
	if len(j.att.fencing) > 0 {
		if !j.fenced(j.att.fencing) {
			return
		}
		faultpoint.Hit(faultpoint.FencedLogged)
	}
	if j.att.settle {
		j.settled()
		return
	}
	j.logger.Info("attempt runs", "attempt", j.att.number, "recovery", time.Duration(j.rec.GetLastRecoveryMs())*time.Millisecond)
	j.status.restoreReaches(j.att.number, allStarted)
	j.failedAt, j.takingUp = time.Time{}, false
	j.enter(phaseRunning, 0)
	j.fenceAt = time.Now().Add(j.m.cfg.FenceEvery)
	j.beginCheckpoints()
	j.resumeRescale()
	j.clean.attemptRuns(j.rec, j.att.number > 1 || j.att.adopted)
}

func nowMs() int64 { return time.Now().UnixMilli() }
