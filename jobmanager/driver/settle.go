package driver

import (
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

const maxSettlePause = 10 * time.Second

// settle takes an ending job, whose workers are gone, to its result.
func (j *job) settle() {
	if !j.mayBeOpen() {
		j.recordResult("")
		return
	}
	if j.settleUntil.IsZero() {
		j.settleUntil = time.Now().Add(j.m.cfg.SettleBudget)
	}
	if !time.Now().Before(j.settleUntil) {
		if j.unsettled == "" {
			j.unsettled = "no TaskManager was connected"
		}
		j.recordResult(fmt.Sprintf("transactions may be open, settling gave up after %s: %s", j.m.cfg.SettleBudget, j.unsettled))
		return
	}
	placements := j.settlePlacements()
	if placements == nil {
		j.enter(phaseBackoff, min(resultRetry, time.Until(j.settleUntil)))
		return
	}
	j.deploy(placements, true)
}

// prepareTimeout bounds a phase of a deployment. A settling attempt has no more time than is left to settle.
func (j *job) prepareTimeout() time.Duration {
	if !j.rec.GetSettlingAttempt() || j.settleUntil.IsZero() {
		return j.m.cfg.PrepareTimeout
	}
	return max(time.Millisecond, min(j.m.cfg.PrepareTimeout, time.Until(j.settleUntil)))
}

// mayBeOpen reports whether the job may have transactions that are prepared or begun: only an attempt that was started begins any, and
// only a completed checkpoint has committables to commit.
func (j *job) mayBeOpen() bool {
	if j.closed || !hasTransactions(j.rec.GetGraph()) {
		return false
	}
	if len(j.rec.GetUnfenced()) > 0 || j.rec.GetStarted() && !j.rec.GetSettlingAttempt() {
		return true
	}
	last, ok := fsm.LastCheckpoint(j.rec)
	return ok && last.GetCommittables() > 0 && !last.GetSettled()
}

// settlePlacements puts all slots of a settling attempt on the TaskManager with the most room. It takes no slots, because it runs
// nothing and an ending job must not wait for resources.
func (j *job) settlePlacements() []*raftv1.Placement {
	var best string
	for id, tm := range j.tms {
		if !tm.Connected || tm.Leaving {
			continue
		}
		if b := j.tms[best]; best == "" || tm.Slots > b.Slots || tm.Slots == b.Slots && id < best {
			best = id
		}
	}
	if best == "" {
		return nil
	}
	tm := j.tms[best]
	var out []*raftv1.Placement
	for i := range scheduler.SlotsOf(j.rec.GetGraph()) {
		out = append(out, &raftv1.Placement{Slot: uint32(i), TaskmanagerId: tm.ID, Incarnation: tm.Incarnation, Host: tm.Host})
	}
	return out
}

// settled follows a settling attempt in which everything was committed and fenced. Its start has told the log that the last checkpoint is
// settled, after which none completes.
func (j *job) settled() {
	j.commandAll(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}}, nil)
	j.stopWorkers(j.recordSettled)
}

// recordSettled follows when the workers of a successful settling attempt are gone.
func (j *job) recordSettled() {
	j.att = nil
	j.recordResult("")
}

// settlingFailed tries again until the budget is used up. A proven loss, or a binary that cannot run, is not going to change.
func (j *job) settlingFailed(cause *failure) {
	j.unsettled = cause.message
	switch cause.class {
	case workerv1.FailureClass_FAILURE_CLASS_DATA_LOSS, workerv1.FailureClass_FAILURE_CLASS_FATAL:
		j.recordResult("transactions are not settled: " + cause.message)
		return
	}
	j.settleTries++
	pause := min(resultRetry<<min(j.settleTries-1, 8), maxSettlePause)
	j.enter(phaseBackoff, max(time.Millisecond, min(pause, time.Until(j.settleUntil))))
}

// recordResult records the job's terminal state and goes on with its clean-up.
func (j *job) recordResult(unsettled string) {
	faultpoint.Hit(faultpoint.ResultDue)
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_RecordResult{RecordResult: &raftv1.RecordResult{
		JobId: j.id, State: j.rec.GetTarget(), AtMs: nowMs(), Unsettled: unsettled,
	}}})
	switch {
	case !ok:
	case res.Err != nil && !fsm.Terminal(j.rec.GetState()):
		j.logger.Error("result not recorded", "error", res.Err)
		j.enter(phaseBackoff, resultRetry)
	default:
		j.finish()
	}
}

// finish ends the driver of a job that has its result.
func (j *job) finish() {
	j.logger.Info("job ended", "state", j.rec.GetState().String(), "unsettled", j.rec.GetUnsettled())
	j.m.slots.withdraw(j.id)
	j.m.slots.release(j.id)
	j.answerStops(nil)
	for id := range j.savepoints {
		j.answerSavepoint(id, savepointReply{err: savepointError("the job has ended")})
	}
	j.phase = phaseDone
	j.m.cleanEnded(j.rec)
	j.m.settleEnded(j.rec)
}

// cancel bars further completions and ends the job.
func (j *job) cancel(requestID string) error {
	return j.end(jobv1.JobState_JOB_STATE_CANCELED, requestID, nil, "the job is canceled")
}

// end takes a live job towards a terminal state. An entry that was proposed again, because its outcome was unknown, may meet itself in the
// log: the record from before tells whether the job was ending already.
func (j *job) end(target jobv1.JobState, requestID string, f *jobv1.Failure, reason string) error {
	before := j.rec.GetState()
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_EndJob{EndJob: &raftv1.EndJob{
		JobId: j.id, RequestId: requestID, Target: target, Failure: f,
	}}})
	switch {
	case !ok:
		return errLeadershipEnded
	case res.Err != nil:
		return res.Err
	case res.Repeated && (before == jobv1.JobState_JOB_STATE_SETTLING || fsm.Terminal(before)):
		return nil
	}
	faultpoint.Hit(faultpoint.EndLogged)
	j.logger.Info("job ends", "target", target.String())
	j.answerStops(stopSuperseded(target))
	j.cause = nil
	if j.phase == phaseStopping {
		j.after = j.proceed
		return nil
	}
	j.endCoordinator(reason)
	if j.phase == phaseDone {
		return errLeadershipEnded
	}
	j.stopWorkers(j.proceed)
	return nil
}
