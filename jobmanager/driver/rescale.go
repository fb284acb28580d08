package driver

import (
	"context"
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// rescaleRequest asks for another parallelism; it is answered once.
type rescaleRequest struct {
	rescale *raftv1.Rescale
	reply   chan<- rescaleReply
}

type rescaleReply struct {
	outcome *raftv1.RescaleOutcome
	err     error
}

// Rescale makes a job run with another graph from its next attempt on, which begins when a checkpoint for it is complete and committed. It
// returns when that attempt is in the log, or the rescale has failed and the job goes on as it was.
func (m *Manager) Rescale(ctx context.Context, jobID string, x *raftv1.Rescale) (*raftv1.RescaleOutcome, error) {
	reply := make(chan rescaleReply, 1)
	r, err := ask(ctx, m, jobID, rescaleRequest{x, reply}, reply)
	if err != nil {
		return nil, err
	}
	return r.outcome, r.err
}

func (j *job) requestRescale(ev rescaleRequest) {
	id := ev.rescale.GetRequestId()
	if o := fsm.RescaleOf(j.rec, id); o != nil {
		ev.reply <- rescaleOutcome(o)
		return
	}
	if j.rec.GetRescale().GetRequestId() == id {
		j.rescales[id] = append(j.rescales[id], ev.reply)
		return
	}
	same := ev.rescale.GetGraph().GetFingerprint() == j.rec.GetGraph().GetFingerprint()
	if err := j.mayRescale(ev.rescale.GetGraph(), same); err != nil {
		ev.reply <- rescaleReply{err: err}
		return
	}
	j.rescales[id] = append(j.rescales[id], ev.reply)
	ev.rescale.AtMs = nowMs()
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_RescaleJob{RescaleJob: &raftv1.RescaleJob{JobId: j.id, Rescale: ev.rescale}}})
	switch {
	case !ok:
		return // abandon answers
	case res.Err != nil:
		delete(j.rescales, id)
		ev.reply <- rescaleReply{err: res.Err}
		return
	case same:
		return // answered by its outcome
	}
	faultpoint.Hit(faultpoint.RescaleLogged)
	j.logger.Info("job is to be rescaled", "from", fsm.Slots(j.rec.GetGraph()), "to", fsm.Slots(fsm.Next(j.rec)))
	switch j.phase {
	case phaseRunning:
		j.coordinate(checkpoint.RequestHandover{})
	case phaseSlots:
		j.m.slots.withdraw(j.id)
		j.waitForSlots()
	}
}

// mayRescale refuses what could not be carried out now, and reserves the slots for what can.
func (j *job) mayRescale(g *jobv1.Graph, same bool) error {
	switch {
	case j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING:
		return fmt.Errorf("%w: it is ending", grpcerr.ErrJobEnded)
	case j.rec.GetStopRequestId() != "":
		return fsm.ErrStopping
	case j.rec.GetRescale() != nil:
		return fsm.ErrRescaling
	case same:
		return nil
	case j.phase == phaseSlots:
		if missing := j.m.slots.offered(j.id, g); missing != "" {
			return tooFewSlots(missing)
		}
		return nil
	case j.phase != phaseRunning:
		return fmt.Errorf("%w: it waits for %s; try again when it runs", grpcerr.ErrJobNotRunning, j.waitingFor())
	}
	if missing := j.m.slots.reserve(j.rec, g); missing != "" {
		return tooFewSlots(missing)
	}
	j.reserving = true
	return nil
}

func tooFewSlots(missing string) error {
	return fmt.Errorf("%w: with that parallelism the job %s", grpcerr.ErrInvalid, missing)
}

func rescaleOutcome(o *raftv1.RescaleOutcome) rescaleReply {
	if o.GetError() != "" {
		return rescaleReply{err: fmt.Errorf("%w: %s", grpcerr.ErrRescaleFailed, o.GetError())}
	}
	return rescaleReply{outcome: o}
}

// answerRescales answers the callers whose rescale has an outcome in the log, after what was reserved for it is free.
func (j *job) answerRescales() {
	if j.rec.GetRescale() == nil && j.reserving {
		j.reserving = false
		j.m.slots.unreserve(j.id)
	}
	for id, replies := range j.rescales {
		if o := fsm.RescaleOf(j.rec, id); o != nil {
			for _, reply := range replies {
				reply <- rescaleOutcome(o)
			}
			delete(j.rescales, id)
		}
	}
}

// handOver ends the attempt, of which a checkpoint is complete and committed, in favour of the next one.
func (j *job) handOver(e checkpoint.Handover) {
	if j.rec.GetRescale() == nil {
		return // given up meanwhile
	}
	faultpoint.Hit(faultpoint.HandoverDue)
	j.logger.Info("attempt is handed over", "attempt", j.att.number, "checkpoint", e.Checkpoint)
	j.failedAt, j.cause = time.Now(), nil
	// A savepoint that was asked for meanwhile is taken by the next attempt.
	j.takingUp = true
	j.endCoordinator("the job is being rescaled")
	if j.phase != phaseDone {
		j.stopWorkers(j.handedOver)
	}
}

func (j *job) handedOver() {
	faultpoint.Hit(faultpoint.HandoverStopped)
	j.proceed()
}

// rescaleFailed gives a rescale up: the job goes on as it was. It returns false when the leadership has ended.
func (j *job) rescaleFailed(reason string) bool {
	id := j.rec.GetRescale().GetRequestId()
	if id == "" {
		return true
	}
	j.logger.Warn("rescale failed, the job goes on", "reason", reason)
	_, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_RescaleJob{RescaleJob: &raftv1.RescaleJob{
		JobId: j.id, FailedRequestId: id, Error: reason, AtMs: nowMs(),
	}}})
	return ok
}

// resumeRescale takes up a rescale of a former leader. TaskManagers with free slots may not have registered yet.
func (j *job) resumeRescale() {
	if j.rec.GetRescale() == nil || j.phase != phaseRunning {
		return
	}
	switch missing := j.m.slots.reserve(j.rec, j.rec.GetRescale().GetGraph()); {
	case missing == "":
		j.reserving, j.rescaleUntil = true, time.Time{}
		j.coordinate(checkpoint.RequestHandover{})
	case j.rescaleUntil.IsZero():
		j.rescaleUntil = time.Now().Add(j.m.cfg.RegisterGrace)
	case !time.Now().Before(j.rescaleUntil):
		j.rescaleUntil = time.Time{}
		j.rescaleFailed("after a change of leaders the job " + missing)
	}
}
