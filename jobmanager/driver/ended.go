package driver

import (
	"context"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// cleanEnded deletes the files of an ended job but those of the checkpoints that it keeps, beside everything else and until it has
// succeeded or the leadership ends.
func (m *Manager) cleanEnded(rec *raftv1.JobRecord) {
	m.goDo(func() {
		defer m.forgetOldest()
		pause := time.Second
		for !m.cleanEndedOnce(m.ctx, rec) {
			select {
			case <-m.ctx.Done():
				return
			case <-time.After(pause):
				pause = min(2*pause, cleanRetry)
			}
		}
	})
}

func (m *Manager) cleanEndedOnce(ctx context.Context, rec *raftv1.JobRecord) bool {
	for _, id := range pinned(rec) { // an export that nobody waits for
		res, err := m.cfg.Log.Propose(ctx, unpinCommand(rec.GetId(), id))
		if err != nil {
			return ctx.Err() != nil
		}
		rec = res.Job
	}
	prefix := jobPrefix(m.cfg.ClusterID, rec.GetId())
	needed := make(map[string]bool)
	for _, cp := range rec.GetCheckpoints() {
		name := cp.GetMetadata().GetName()
		md, err := ReadCheckpoint(ctx, m.cfg.Bucket, m.cfg.OpenBucket, cp)
		if err != nil {
			m.cfg.Logger.Warn("files of an ended job stay, since its last checkpoint cannot be read", "job", rec.GetId(), "error", err)
			m.cfg.Metrics.deleteErrors.Inc()
			return ctx.Err() != nil
		}
		needed[name] = true
		for _, f := range checkpoint.Files(md.GetTasks()) {
			needed[f.GetName()] = true
		}
	}
	var names []string
	for a, err := range m.cfg.Bucket.List(ctx, prefix) {
		if err != nil {
			m.cfg.Metrics.deleteErrors.Inc()
			return ctx.Err() != nil
		}
		if !needed[a.Name] {
			names = append(names, a.Name)
		}
	}
	if len(m.deleteAll(ctx, names)) > 0 {
		return ctx.Err() != nil
	}
	var ids []uint64
	for _, g := range rec.GetGarbage() {
		ids = append(ids, g.GetId())
	}
	if len(ids) == 0 {
		return true
	}
	_, err := m.cfg.Log.Propose(ctx, &raftv1.Command{Command: &raftv1.Command_DropGarbage{DropGarbage: &raftv1.DropGarbage{
		JobId: rec.GetId(), Checkpoints: ids,
	}}})
	return err == nil || ctx.Err() != nil
}

// forgetOldest bounds the history. Jobs that may be continued, those with files left and those with unsettled transactions stay.
func (m *Manager) forgetOldest() {
	var ended []string
	for _, rec := range m.cfg.Log.View().Jobs() {
		switch rec.GetState() {
		case jobv1.JobState_JOB_STATE_FINISHED, jobv1.JobState_JOB_STATE_CANCELED:
			if len(rec.GetGarbage()) == 0 && len(rec.GetCheckpoints()) == 0 && rec.GetUnsettled() == "" {
				ended = append(ended, rec.GetId())
			}
		}
	}
	for _, id := range ended[:max(0, len(ended)-maxEnded)] {
		if m.ctx.Err() != nil {
			return
		}
		_, err := m.cfg.Log.Propose(m.ctx, &raftv1.Command{Command: &raftv1.Command_ForgetJob{ForgetJob: &raftv1.ForgetJob{JobId: id}}})
		if err != nil {
			return // the next job to end tries again
		}
	}
}
