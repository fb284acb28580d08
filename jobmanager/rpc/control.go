package rpc

import (
	"context"
	"errors"
	"fmt"
	"strings"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
)

// live finds a job for a request that changes it. A request that was heard before means the job that it meant then: by now its name
// may be another job's.
func (s *Services) live(ctx context.Context, job, requestID string) (*Leader, *raftv1.JobRecord, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	if requestID == "" {
		return nil, nil, invalid("the request needs a request id")
	}
	if rec := heard(l.Log.View(), job, requestID); rec != nil {
		return l, rec, nil
	}
	rec, err := find(l.Log.View(), job)
	return l, rec, err
}

// heard returns the job of this id or name that remembers the request, nil when none does.
func heard(v fsm.View, job, requestID string) *raftv1.JobRecord {
	for _, rec := range v.Jobs() {
		if rec.GetName() != job && rec.GetId() != strings.ToLower(job) {
			continue
		}
		if rec.GetEndRequestId() == requestID || rec.GetStopRequestId() == requestID || savepointOf(rec, requestID) != nil ||
			rec.GetRescale().GetRequestId() == requestID || fsm.RescaleOf(rec, requestID) != nil {
			return rec
		}
	}
	return nil
}

func savepointOf(rec *raftv1.JobRecord, requestID string) *raftv1.Savepoint {
	for _, sp := range rec.GetSavepoints() {
		if sp.GetRequestId() == requestID {
			return sp
		}
	}
	return nil
}

func ended(rec *raftv1.JobRecord) error {
	state := strings.ToLower(strings.TrimPrefix(rec.GetState().String(), "JOB_STATE_"))
	return fmt.Errorf("%w: job %s (%s) is %s", grpcerr.ErrJobEnded, rec.GetName(), rec.GetId(), state)
}

// CancelJob implements jobv1.JobServiceServer. It answers when the job is bound to end; a cancelled job may be cancelled again.
func (s *Services) CancelJob(ctx context.Context, req *jobv1.CancelJobRequest) (*jobv1.CancelJobResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	resp := &jobv1.CancelJobResponse{JobId: rec.GetId()}
	canceled := jobv1.JobState_JOB_STATE_CANCELED
	if rec.GetState() == canceled || rec.GetTarget() == canceled && rec.GetState() == jobv1.JobState_JOB_STATE_SETTLING {
		return resp, nil
	}
	if fsm.Terminal(rec.GetState()) {
		return nil, ended(rec)
	}
	if err := l.Jobs.Cancel(ctx, rec.GetId(), req.GetRequestId()); err != nil {
		return nil, mapped(err)
	}
	return resp, nil
}

// StopJob implements jobv1.JobServiceServer. It answers when the last checkpoint, and savepoint, is complete, or when the stop has
// failed and the job goes on.
func (s *Services) StopJob(ctx context.Context, req *jobv1.StopJobRequest) (*jobv1.StopJobResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	resp := &jobv1.StopJobResponse{JobId: rec.GetId()}
	if fsm.Terminal(rec.GetState()) {
		// A stop that came together with the end of the input ends the job as finished.
		success := rec.GetState() == jobv1.JobState_JOB_STATE_STOPPED || rec.GetState() == jobv1.JobState_JOB_STATE_FINISHED
		if success && rec.GetStopRequestId() == req.GetRequestId() {
			return resp, nil
		}
		if sp := savepointOf(rec, req.GetRequestId()); sp.GetError() != "" {
			return nil, fmt.Errorf("%w: %s", grpcerr.ErrSavepointFailed, sp.GetError())
		}
		return nil, ended(rec)
	}
	if !rec.GetGraph().GetCheckpoints().GetEnabled() {
		return nil, invalid("job %s takes no checkpoints, so it cannot be stopped with one; cancel it", rec.GetName())
	}
	if err := s.checkDir(ctx, req.GetSavepointDir()); err != nil {
		return nil, err
	}
	if err := l.Jobs.Stop(ctx, rec.GetId(), req.GetRequestId(), req.GetSavepointDir()); err != nil {
		return nil, mapped(err)
	}
	return resp, nil
}

// CreateSavepoint implements jobv1.JobServiceServer. It answers when the export is complete.
func (s *Services) CreateSavepoint(ctx context.Context, req *jobv1.CreateSavepointRequest) (*jobv1.CreateSavepointResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	switch sp := savepointOf(rec, req.GetRequestId()); {
	case sp.GetError() != "":
		return nil, fmt.Errorf("%w: %s", grpcerr.ErrSavepointFailed, sp.GetError())
	case sp != nil:
		return &jobv1.CreateSavepointResponse{Path: sp.GetPath(), Checkpoint: sp.GetCheckpoint()}, nil
	}
	if fsm.Terminal(rec.GetState()) {
		return nil, ended(rec)
	}
	if err := s.checkDir(ctx, req.GetDir()); err != nil {
		return nil, err
	}
	path, id, err := l.Jobs.Savepoint(ctx, rec.GetId(), req.GetRequestId(), req.GetDir())
	if err != nil {
		return nil, mapped(err)
	}
	return &jobv1.CreateSavepointResponse{Path: path, Checkpoint: id}, nil
}

// checkDir refuses a savepoint directory before the job is disturbed.
func (s *Services) checkDir(ctx context.Context, dir string) error {
	if dir == "" {
		return nil
	}
	b, err := s.open(ctx, dir)
	if err != nil {
		return invalid("savepoint directory: %v", err)
	}
	return b.Close()
}

// ReadLogs implements jobv1.JobServiceServer.
func (s *Services) ReadLogs(req *jobv1.ReadLogsRequest, stream jobv1.JobService_ReadLogsServer) error {
	l, rec, err := s.job(stream.Context(), req.GetJob())
	if err != nil {
		return err
	}
	err = l.Registry.ReadLogs(stream.Context(), rec.GetId(), req.GetAttempt(), req.GetTailLines(), func(tm registry.TaskManager, c *clusterv1.LogChunk) error {
		return stream.Send(&jobv1.ReadLogsResponse{TaskmanagerId: tm.ID, Attempt: c.GetAttempt(), Chunk: c.GetChunk()})
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
