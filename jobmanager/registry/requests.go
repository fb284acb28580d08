package registry

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// logBacklog is the number of log chunks that may wait for a slow reader; a slower one is cut off.
const logBacklog = 1024

// logRead is one TaskManager's answer to ReadLogs.
type logRead struct {
	chunks chan *clusterv1.LogChunk
	slow   bool // guarded by Registry.mu
}

// Plan runs a job binary in plan mode on one TaskManager and returns what it printed. The error says why it could not be run.
func (r *Registry) Plan(ctx context.Context, req *clusterv1.PlanJob) (*jobv1.PlanResult, error) {
	var last error
	for _, tm := range r.TaskManagers() {
		if !tm.Connected || tm.Leaving {
			continue
		}
		planned, err := r.planOn(ctx, tm, req)
		switch {
		case err == nil && planned.GetError() != "":
			return nil, fmt.Errorf("%w: the job binary cannot be planned on %s: %s", grpcerr.ErrInvalid, tm.Host, planned.GetError())
		case err == nil:
			return planned.GetResult(), nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("plan on %s: %w", tm.Host, err)
		}
		last = err
	}
	if last != nil {
		return nil, last
	}
	return nil, fmt.Errorf("%w: the job graph is made by one; start a TaskManager and submit again", grpcerr.ErrNoTaskManager)
}

func (r *Registry) planOn(ctx context.Context, tm TaskManager, req *clusterv1.PlanJob) (*clusterv1.JobPlanned, error) {
	id := ulid.Make().String()
	answer := make(chan *clusterv1.JobPlanned, 1) // one answer, whether or not anybody still waits
	r.mu.Lock()
	var ended <-chan struct{}
	if e := r.tms[tm.ID]; e != nil && e.session != nil {
		ended = e.session.ended
	}
	r.plans[id] = answer
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.plans, id)
		r.mu.Unlock()
	}()
	if ended == nil {
		return nil, fmt.Errorf("TaskManager %s: %w", tm.ID, grpcerr.ErrNoTaskManager)
	}
	req = proto.CloneOf(req)
	req.PlanId = id
	err := r.Send(tm.ID, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_PlanJob{PlanJob: req}})
	if err != nil {
		return nil, err
	}
	select {
	case p := <-answer:
		return p, nil
	case <-ended:
		return nil, fmt.Errorf("TaskManager %s left while it planned the job: %w", tm.ID, grpcerr.ErrNoTaskManager)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *Registry) planned(p *clusterv1.JobPlanned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.plans[p.GetPlanId()]; c != nil {
		delete(r.plans, p.GetPlanId())
		c <- p
	}
}

// ReadLogs passes what every connected TaskManager has kept of a job's output to each, one TaskManager after the other.
func (r *Registry) ReadLogs(ctx context.Context, jobID string, attempt uint64, tail uint32, each func(tm TaskManager, c *clusterv1.LogChunk) error) error {
	for _, tm := range r.TaskManagers() {
		if !tm.Connected {
			continue
		}
		if err := r.readLogsOf(ctx, tm, jobID, attempt, tail, each); err != nil {
			return err
		}
	}
	return nil
}

func (r *Registry) readLogsOf(ctx context.Context, tm TaskManager, jobID string, attempt uint64, tail uint32, each func(TaskManager, *clusterv1.LogChunk) error) error {
	id := ulid.Make().String()
	read := &logRead{chunks: make(chan *clusterv1.LogChunk, logBacklog)}
	r.mu.Lock()
	var ended <-chan struct{}
	if e := r.tms[tm.ID]; e != nil && e.session != nil {
		ended = e.session.ended
	}
	r.logs[id] = read
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.logs, id)
		r.mu.Unlock()
	}()
	if ended == nil {
		return nil
	}
	err := r.Send(tm.ID, &clusterv1.SessionResponse{Message: &clusterv1.SessionResponse_ReadLogs{ReadLogs: &clusterv1.ReadLogs{
		ReadId: id, JobId: jobID, Attempt: attempt, TailLines: tail,
	}}})
	if err != nil {
		return err
	}
	for {
		select {
		case c, open := <-read.chunks:
			if !open {
				return fmt.Errorf("logs of TaskManager %s came faster than they were read; ask for fewer lines", tm.ID)
			}
			if c.GetError() != "" {
				return fmt.Errorf("logs of TaskManager %s: %s", tm.ID, c.GetError())
			}
			if len(c.GetChunk()) > 0 {
				if err := each(tm, c); err != nil {
					return err
				}
			}
			if c.GetEnd() {
				return nil
			}
		case <-ended:
			return fmt.Errorf("TaskManager %s left while its logs were read: %w", tm.ID, grpcerr.ErrNoTaskManager)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Registry) logChunk(c *clusterv1.LogChunk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read := r.logs[c.GetReadId()]
	if read == nil || read.slow {
		return
	}
	select {
	case read.chunks <- c:
	default:
		read.slow = true
		close(read.chunks)
	}
}
