package driver

import (
	"fmt"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// requestStop records a stop in the log, and then asks the coordinator for its checkpoint. The caller waits until the job is ending
// or the stop has failed.
func (j *job) requestStop(ev stopRequest) {
	// As in end, an entry that was proposed again may meet itself in the log.
	known := j.rec.GetStopRequestId() == ev.requestID
	res, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_RequestStop{RequestStop: &raftv1.RequestStop{
		JobId: j.id, RequestId: ev.requestID, SavepointDir: ev.dir,
	}}})
	switch {
	case !ok:
		ev.reply <- errLeadershipEnded
		return
	case res.Err != nil:
		ev.reply <- res.Err
		return
	case res.Repeated:
		if sp := savepointByRequest(j.rec, ev.requestID); sp != nil && sp.GetError() != "" {
			ev.reply <- savepointError(sp.GetError())
			return
		}
		if j.rec.GetStopRequestId() != ev.requestID || j.rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING {
			ev.reply <- nil
			return
		}
	}
	j.stops = append(j.stops, ev.reply)
	if !known && j.phase == phaseRunning {
		j.coordinate(checkpoint.RequestStop{RequestID: ev.requestID, Savepoint: ev.dir != ""})
	}
}

// stopFailed: the job goes on, and the log remembers that this stop is over.
func (j *job) stopFailed(e checkpoint.StopFailed) {
	if e.RequestID != j.rec.GetStopRequestId() {
		return
	}
	j.logger.Warn("stop failed, the job goes on", "reason", e.Reason)
	j.clearStop(e.Reason)
}

// clearStop ends a stop without success. When the leadership has ended meanwhile the next leader may take the stop up again, so that
// its callers learn only that nobody knows.
func (j *job) clearStop(reason string) {
	_, ok := j.propose(&raftv1.Command{Command: &raftv1.Command_ClearStop{ClearStop: &raftv1.ClearStop{JobId: j.id, Error: reason}}})
	if ok {
		j.answerStops(savepointError(reason))
	}
}

func (j *job) answerStops(err error) {
	for _, c := range j.stops {
		c <- err
	}
	j.stops = nil
}

func stopSuperseded(target jobv1.JobState) error {
	if target == jobv1.JobState_JOB_STATE_STOPPED {
		return nil
	}
	return fmt.Errorf("%w: the job was canceled before it could be stopped", grpcerr.ErrJobEnded)
}

func savepointError(reason string) error {
	return fmt.Errorf("%w: %s", grpcerr.ErrSavepointFailed, reason)
}

func savepointByRequest(rec *raftv1.JobRecord, requestID string) *raftv1.Savepoint {
	for _, sp := range rec.GetSavepoints() {
		if sp.GetRequestId() == requestID {
			return sp
		}
	}
	return nil
}
