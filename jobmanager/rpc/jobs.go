package rpc

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/driver"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// GetJob implements jobv1.JobServiceServer.
func (s *Services) GetJob(ctx context.Context, req *jobv1.GetJobRequest) (*jobv1.GetJobResponse, error) {
	l, rec, err := s.job(ctx, req.GetJob())
	if err != nil {
		return nil, err
	}
	return &jobv1.GetJobResponse{Job: describe(ctx, l, rec)}, nil
}

// ListJobs implements jobv1.JobServiceServer. Jobs come in the order of their creation, without graphs.
func (s *Services) ListJobs(ctx context.Context, req *jobv1.ListJobsRequest) (*jobv1.ListJobsResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	resp := &jobv1.ListJobsResponse{}
	for _, rec := range l.Log.View().Jobs() {
		if fsm.Terminal(rec.GetState()) && !req.GetIncludeEnded() {
			continue
		}
		job := describe(ctx, l, rec)
		job.Graph = &jobv1.Graph{Name: rec.GetGraph().GetName()}
		for _, v := range rec.GetGraph().GetVertices() {
			job.Graph.Vertices = append(job.Graph.Vertices, &jobv1.Vertex{Id: v.GetId(), Parallelism: v.GetParallelism(), Source: v.GetSource()})
		}
		job.Failures = job.GetFailures()[max(0, len(job.GetFailures())-1):]
		resp.Jobs = append(resp.Jobs, job)
	}
	free, total := l.Jobs.Slots()
	resp.FreeSlots, resp.TotalSlots = uint32(free), uint32(total)
	return resp, nil
}

// ListCheckpoints implements jobv1.JobServiceServer: newest first, those in progress and failed ones included.
func (s *Services) ListCheckpoints(ctx context.Context, req *jobv1.ListCheckpointsRequest) (*jobv1.ListCheckpointsResponse, error) {
	l, rec, err := s.job(ctx, req.GetJob())
	if err != nil {
		return nil, err
	}
	progress, _, _ := l.Jobs.Status(ctx, rec.GetId())
	byID := make(map[uint64]*jobv1.Checkpoint)
	for _, cp := range progress.Checkpoints {
		byID[cp.GetId()] = cp
	}
	for _, cp := range rec.GetCheckpoints() {
		byID[cp.GetId()] = completed(rec, cp, progress)
	}
	resp := &jobv1.ListCheckpointsResponse{}
	for _, cp := range byID {
		resp.Checkpoints = append(resp.Checkpoints, cp)
	}
	slices.SortFunc(resp.Checkpoints, func(a, b *jobv1.Checkpoint) int { return cmp.Compare(b.GetId(), a.GetId()) })
	for _, sp := range slices.Backward(rec.GetSavepoints()) {
		resp.Savepoints = append(resp.Savepoints, &jobv1.TakenSavepoint{
			Path: sp.GetPath(), Checkpoint: sp.GetCheckpoint(), AtMs: sp.GetAtMs(), Error: sp.GetError(),
		})
	}
	return resp, nil
}

// ExplainJob implements jobv1.JobServiceServer.
func (s *Services) ExplainJob(ctx context.Context, req *jobv1.ExplainJobRequest) (*jobv1.ExplainJobResponse, error) {
	l, rec, err := s.job(ctx, req.GetJob())
	if err != nil {
		return nil, err
	}
	progress, _, driven := l.Jobs.Explain(ctx, rec)
	if !driven {
		progress.Explanation = driver.Explain(rec)
	}
	at := time.Now()
	resp := &jobv1.ExplainJobResponse{
		JobId: rec.GetId(), Name: rec.GetName(), State: rec.GetState(), Summary: progress.Explanation.Summary(), AtMs: at.UnixMilli(),
	}
	for _, f := range progress.Explanation.Findings {
		out := &jobv1.Finding{Kind: f.Kind, Text: f.Text, Advice: f.Advice, Blocking: f.Blocking}
		if !f.Since.IsZero() {
			out.SinceMs = at.Add(-at.Sub(f.Since)).UnixMilli() // on the clock of AtMs, which may have been set meanwhile
		}
		resp.Findings = append(resp.Findings, out)
	}
	return resp, nil
}

// describe puts together what the log and the driver know of a job.
func describe(ctx context.Context, l *Leader, rec *raftv1.JobRecord) *jobv1.Job {
	job := &jobv1.Job{
		Id: rec.GetId(), Name: rec.GetName(), State: rec.GetState(), Attempt: rec.GetAttempt(), Restarts: rec.GetRestarts(),
		CreatedAtMs: rec.GetCreatedAtMs(), EndedAtMs: rec.GetEndedAtMs(), Graph: rec.GetGraph(), Args: rec.GetArgs(),
		ArtifactSha256: rec.GetArtifactSha256(), Failures: slices.Clone(rec.GetFailures()), Prepared: rec.GetPrepared(),
		Unsettled: rec.GetUnsettled(), CompletedCheckpoints: rec.GetCompletedCheckpoints(), LastRecoveryMs: rec.GetLastRecoveryMs(),
		SavepointPath: savepointPath(rec), RecordsPerSecond: -1, LagRecords: -1, Lost: rec.GetLost(),
		AutoParallelism: rec.GetAutoParallelism(), OperatorParallelism: rec.GetOperatorParallelism(),
	}
	if x := rec.GetRescale(); x != nil {
		job.RescalingTo = fsm.Slots(x.GetGraph())
	} else if n := len(rec.GetRescales()); n > 0 {
		job.RescaleFailure = rec.GetRescales()[n-1].GetError()
	}
	progress, figures, driven := l.Jobs.Status(ctx, rec.GetId())
	if cp, ok := fsm.LastCheckpoint(rec); ok {
		job.LastCheckpoint = completed(rec, cp, progress)
	}
	if driven {
		job.WaitingFor, job.RecordsPerSecond, job.LagRecords = progress.Explanation.Waiting(), figures.RecordsPerSecond, figures.LagRecords
		if rec.GetGraph().GetCheckpoints().GetEnabled() {
			job.UncoveredMs = proto.Uint64(uint64(figures.Uncovered.Milliseconds()))
		}
	}
	job.Tasks, job.Restore = tasksOf(rec, figures), figures.Restore
	return job
}

func tasksOf(rec *raftv1.JobRecord, f driver.Figures) []*jobv1.Task {
	var tasks []*jobv1.Task
	for _, v := range rec.GetGraph().GetVertices() {
		for _, p := range rec.GetPlacements() {
			if p.GetSlot() >= v.GetParallelism() {
				continue
			}
			id := checkpoint.TaskID{Vertex: v.GetId(), Subtask: p.GetSlot()}
			tasks = append(tasks, &jobv1.Task{
				Vertex: id.Vertex, Subtask: id.Subtask, Name: id.String(), TaskmanagerId: p.GetTaskmanagerId(), Host: p.GetHost(),
				Statistics: f.Tasks[id],
			})
		}
	}
	return tasks
}

func completed(rec *raftv1.JobRecord, cp *raftv1.CompletedCheckpoint, progress driver.Progress) *jobv1.Checkpoint {
	out := &jobv1.Checkpoint{
		Id: cp.GetId(), Attempt: cp.GetAttempt(), State: checkpoint.StateCompleted, TriggeredAtMs: cp.GetTriggeredAtMs(),
		DurationMs: cp.GetDurationMs(), DeltaBytes: cp.GetDeltaBytes(), TotalBytes: cp.GetTotalBytes(),
		Path: cp.GetMetadata().GetName(), Savepoint: cp.GetPinned(),
	}
	for _, measured := range progress.Checkpoints {
		if measured.GetId() == cp.GetId() {
			out.AgeMs, out.Full = measured.AgeMs, measured.GetFull()
			out.AlignmentMs, out.SyncMs, out.AsyncMs = measured.GetAlignmentMs(), measured.GetSyncMs(), measured.GetAsyncMs()
			out.SlowestTask, out.SlowestMs = measured.GetSlowestTask(), measured.GetSlowestMs()
		}
	}
	if out.AgeMs == nil {
		// It ended under another leader or attempt, so only the clocks tell, which may have been set.
		end := time.UnixMilli(cp.GetTriggeredAtMs()).Add(time.Duration(cp.GetDurationMs()) * time.Millisecond)
		out.AgeMs = proto.Uint64(uint64(max(0, time.Since(end)).Milliseconds()))
	}
	for _, sp := range rec.GetSavepoints() {
		out.Savepoint = out.Savepoint || sp.GetCheckpoint() == cp.GetId() && sp.GetError() == ""
	}
	return out
}

// savepointPath is the savepoint that a stopped job left; for others the newest one.
func savepointPath(rec *raftv1.JobRecord) string {
	var path string
	for _, sp := range rec.GetSavepoints() {
		if sp.GetError() == "" {
			path = sp.GetPath()
			if sp.GetRequestId() == rec.GetStopRequestId() {
				return path
			}
		}
	}
	return path
}
