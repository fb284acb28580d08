package driver

import (
	"errors"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// errLeadershipEnded answers requests that a driver cannot finish: nobody knows yet what the next leader makes of them.
var errLeadershipEnded = grpcerr.ErrUnknownOutcome

// propose puts a command into the log and takes over the record that results. It returns false when the leadership has ended: the
// driver must do nothing more then. A command whose outcome was unknown is proposed again after a barrier; the state machine rejects
// or recognises the second one, and the record tells.
func (j *job) propose(cmd *raftv1.Command) (fsm.Result, bool) {
	for {
		res, err := j.m.cfg.Log.Propose(j.ctx, cmd)
		if err == nil {
			j.adopt(res.Job)
			return res, true
		}
		if errors.Is(err, raftnode.ErrUnknownOutcome) && j.barrier() {
			continue
		}
		return fsm.Result{}, j.halt(err)
	}
}

// barrier reports whether this member still leads and has applied everything before.
func (j *job) barrier() bool {
	if j.ctx.Err() != nil || j.m.cfg.Log.Barrier(j.ctx) != nil {
		return false
	}
	if rec, ok := j.m.cfg.Log.View().Job(j.id); ok {
		j.adopt(rec)
	}
	return true
}

// halt waits for the end of the leadership, which the log has seen before the driver was told. It always returns false.
func (j *job) halt(err error) bool {
	j.logger.Info("driver stops", "reason", err)
	j.phase = phaseDone
	return false
}

func (j *job) adopt(rec *raftv1.JobRecord) {
	if rec != nil {
		j.rec = rec
		j.clean.update(rec)
		j.answerRescales()
	}
}
