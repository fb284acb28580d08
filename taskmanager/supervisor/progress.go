package supervisor

import (
	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// progress is how far a worker has come, as its commands and events tell: what a new leader cannot know otherwise.
type progress struct {
	dataAddress                     string
	started, inputEnded             bool
	triggered, completed, committed uint64
}

func (p *progress) command(c *workerv1.Command) {
	p.triggered = max(p.triggered, c.GetTriggerCheckpoint().GetCheckpoint())
	p.completed = max(p.completed, c.GetCompleteCheckpoint().GetCheckpoint())
}

func (p *progress) event(e *workerv1.Event) {
	if prepared := e.GetPrepared(); prepared != nil {
		p.dataAddress = prepared.GetDataAddress()
	}
	p.started = p.started || e.GetStarted() != nil
	p.inputEnded = p.inputEnded || e.GetActivity().GetEnded()
	p.committed = max(p.committed, e.GetCommitAcked().GetCheckpoint())
}

// report describes the worker for a leader's registration.
func (w *worker) report() *clusterv1.RunningAttempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.progress
	return &clusterv1.RunningAttempt{
		JobId: w.key.job, Attempt: w.key.attempt, Tasks: w.start.GetPrepare().GetTasks(), DataAddress: p.dataAddress, Started: p.started,
		InputEnded: p.inputEnded, Triggered: p.triggered, Completed: p.completed, Committed: p.committed,
	}
}
