package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/taskmanager/worker"
)

const (
	// host is where data listeners are opened; with one worker nobody connects to them.
	host = "127.0.0.1"
	// workerName is the only worker's in the coordinator.
	workerName = "local"
	// stopTries is how often the last checkpoint is tried.
	stopTries = 3
	// stopSlack is how long a stop may take beyond the time of a checkpoint.
	stopSlack = 10 * time.Second
	// settleWithin bounds a settling attempt.
	settleWithin = 30 * time.Second
)

// how says in which way an attempt ended.
type how int

const (
	finished how = iota + 1 // all input ended and is committed
	stopped                 // with a last checkpoint
	canceled                // without
	failed
)

// ending is the end of an attempt.
type ending struct {
	how     how
	task    string
	message string
	stack   string
	class   workerv1.FailureClass
	policy  graph.RestartPolicy
	// stuck is set when tasks of the attempt are still running.
	stuck error
	// idle tells that the attempt never ran.
	idle bool
}

func failure(err error) *ending {
	return &ending{how: failed, message: err.Error(), class: workerv1.FailureClass_FAILURE_CLASS_STORAGE}
}

// attempt drives one attempt of the job; its methods run on one goroutine.
type attempt struct {
	*runner
	graph   *graph.Graph
	worker  *worker.Worker
	events  *queue
	restore *workerv1.RestorePoint
	coord   *checkpoint.Coordinator // nil before the tasks run
	// end is set when the attempt has ended.
	end *ending
	// target is how the job ends when the worker has closed.
	target how
	// stops counts how often the last checkpoint was asked for.
	stops int
}

// attempt runs one attempt to its end.
func (r *runner) attempt(ctx context.Context) ending {
	program, err := r.cfg.Plan(0)
	if err != nil {
		return ending{how: failed, message: err.Error(), class: workerv1.FailureClass_FAILURE_CLASS_FATAL}
	}
	a := &attempt{runner: r, graph: program.Graph, events: newQueue(), restore: r.restorePoint()}
	if err := r.dir.beginAttempt(a.graph, false); err != nil {
		e := failure(err)
		e.policy = a.graph.Restarts
		return *e
	}
	faultpoint.Hit(faultpoint.LocalAttemptRecorded)
	a.worker = a.newWorker(a.logStart(a.events.put))
	a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: a.prepare(false)}})
	end := a.loop(ctx)
	a.worker.Close()
	if err := a.worker.Wait(); errors.Is(err, worker.ErrStuck) {
		end.stuck = err
	}
	if end.how == failed && a.restore != nil && a.coord == nil {
		end.message += fmt.Sprintf(" [state directory %s; remove it to start from nothing]", r.dir.path)
	}
	end.policy, end.idle = a.graph.Restarts, a.coord == nil
	return end
}

// logStart returns a Report function that logs the start of the tasks before it passes it on. The worker reports it before they run and
// logs by itself what goes wrong with them, so that the log has both in their order.
func (a *attempt) logStart(report func(*workerv1.Event)) func(*workerv1.Event) {
	tasks := 0
	for _, v := range a.graph.Vertices {
		tasks += v.Parallelism
	}
	logger := a.cfg.Logger.With("attempt", a.dir.job().GetAttempt(), "tasks", tasks)
	return func(e *workerv1.Event) {
		if e.GetStarted() != nil {
			logger.Info("job is running")
		}
		report(e)
	}
}

func (a *attempt) newWorker(report func(*workerv1.Event)) *worker.Worker {
	return worker.New(worker.Config{
		Plan: a.cfg.Plan, Store: a.dir.store, Dir: a.dir.work(), Clock: a.cfg.Clock, Report: report,
		Logger: a.cfg.Logger.With("attempt", a.dir.job().GetAttempt()),
	})
}

func (a *attempt) prepare(settleOnly bool) *workerv1.Prepare {
	j := a.dir.job()
	p := &workerv1.Prepare{
		ClusterId: a.dir.cluster(), JobId: j.GetId(), JobName: j.GetName(), Attempt: j.GetAttempt(),
		Fingerprint: a.graph.Fingerprint, Restore: a.restore, Token: randomID(), BindHost: host, AdvertiseHost: host,
		SettleOnly: settleOnly,
	}
	for _, v := range a.graph.Vertices {
		for i := range v.Parallelism {
			p.Tasks = append(p.Tasks, &workerv1.TaskAssignment{Vertex: v.ID, Subtask: uint32(i)})
		}
	}
	return p
}

// loop handles events until the attempt has ended.
func (a *attempt) loop(ctx context.Context) ending {
	interrupted := ctx.Done()
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	var giveUp <-chan time.Time
	for a.end == nil {
		if a.coord != nil {
			if at, ok := a.coord.Deadline(); ok {
				tick.Reset(max(0, at.Sub(a.cfg.Clock.Now())))
			} else {
				tick.Reset(time.Hour)
			}
		}
		select {
		case <-a.events.wake:
			a.drain()
		case <-tick.C:
			a.handle(checkpoint.Tick{})
		case <-interrupted:
			interrupted = nil
			// Tasks whose start is reported may have emitted something already, and so need a last checkpoint.
			if a.drain(); a.end != nil {
				continue
			}
			if a.coord == nil {
				return ending{how: canceled, message: "the job was not running yet"}
			}
			a.cfg.Logger.Info("stopping: taking a last checkpoint")
			giveUp = time.After(a.graph.Checkpoints.Timeout + stopSlack)
			a.handle(a.requestStop())
		case <-giveUp:
			return ending{how: canceled, message: "the last checkpoint takes too long"}
		}
	}
	return *a.end
}

// drain handles what the worker has reported so far.
func (a *attempt) drain() {
	for _, e := range a.events.take() {
		if a.end == nil {
			a.event(e)
		}
	}
}

func (a *attempt) requestStop() checkpoint.RequestStop {
	a.stops++
	return checkpoint.RequestStop{RequestID: fmt.Sprintf("stop-%d", a.stops)}
}

// event handles what the worker reports.
func (a *attempt) event(e *workerv1.Event) {
	switch e := e.GetEvent().(type) {
	case *workerv1.Event_Rewritten:
		if err := a.replace(e.Rewritten); err != nil {
			a.end = failure(err)
		}
	case *workerv1.Event_Prepared:
		a.prepared()
	case *workerv1.Event_Started:
		a.started()
	case *workerv1.Event_CheckpointAck:
		ack := e.CheckpointAck
		a.handle(checkpoint.Ack{Checkpoint: ack.GetCheckpoint(), Handle: ack.GetHandle(), DeltaBytes: ack.GetDeltaBytes()})
	case *workerv1.Event_CheckpointDeclined:
		d := e.CheckpointDeclined
		a.handle(checkpoint.Decline{
			Checkpoint: d.GetCheckpoint(), Task: checkpoint.TaskID{Vertex: d.GetVertex(), Subtask: d.GetSubtask()}, Reason: d.GetReason(),
		})
	case *workerv1.Event_CommitAcked:
		a.handle(checkpoint.CommitAcked{Worker: workerName, Checkpoint: e.CommitAcked.GetCheckpoint()})
	case *workerv1.Event_Activity:
		a.handle(checkpoint.Activity{Since: e.Activity.GetSinceCheckpoint()})
		if e.Activity.GetEnded() {
			a.handle(checkpoint.InputEnded{Worker: workerName})
		}
	case *workerv1.Event_TaskFailed:
		f := e.TaskFailed
		a.end = &ending{how: failed, message: f.GetMessage(), stack: f.GetStack(), class: f.GetClass()}
		if f.GetVertex() != "" {
			a.end.task = checkpoint.TaskID{Vertex: f.GetVertex(), Subtask: f.GetSubtask()}.String()
		}
	case *workerv1.Event_Closed:
		a.end = &ending{how: a.target}
	}
}

// replace puts what the worker has written again in the place of lost transactions, and lets the worker commit it once that is durable.
func (a *attempt) replace(e *workerv1.Rewritten) error {
	next, _, err := checkpoint.Replace(a.dir.replacements(), e.GetReplacements())
	if err == nil {
		err = a.dir.update(func(j *raftv1.JobRecord) {
			j.Replaced = &raftv1.Replacements{Checkpoint: a.restore.GetCheckpoint(), Replacements: next}
		})
	}
	if err != nil {
		return fmt.Errorf("record what was written again: %w", err)
	}
	a.cfg.Logger.Warn("lost output is written again from what is kept", "checkpoint", a.restore.GetCheckpoint())
	a.worker.Do(&workerv1.Command{Command: &workerv1.Command_CommitRewritten{CommitRewritten: &workerv1.CommitRewritten{}}})
	return nil
}

// prepared begins phase two: the committables of the restore point are committed.
func (a *attempt) prepared() {
	err := a.dir.update(func(j *raftv1.JobRecord) {
		j.Started, j.Prepared = true, true
		j.State, j.Target = jobv1.JobState_JOB_STATE_RUNNING, jobv1.JobState_JOB_STATE_UNSPECIFIED
		settle(j, a.restore.GetCheckpoint())
	})
	if err != nil {
		a.end = failure(err)
		return
	}
	a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{Fence: a.former()}}})
}

// former returns the attempts that are to be fenced.
func (a *attempt) former() (attempts []*workerv1.FencedAttempt) {
	j := a.dir.job()
	for _, f := range j.GetUnfenced() {
		if f.GetAttempt() < j.GetAttempt() {
			attempts = append(attempts, f)
		}
	}
	return attempts
}

// started begins the checkpoints.
func (a *attempt) started() {
	if a.coord != nil {
		return
	}
	// The tasks of former attempts ended with their process or were waited for, and their ids are fenced now.
	if err := a.dir.update(func(j *raftv1.JobRecord) { fenced(j, j.GetAttempt()) }); err != nil {
		a.end = failure(err)
		return
	}
	faultpoint.Hit(faultpoint.LocalFencedRecorded)
	j, cps := a.dir.job(), a.graph.Checkpoints
	cfg := checkpoint.Config{
		ClusterID: a.dir.cluster(), JobID: j.GetId(), Attempt: j.GetAttempt(),
		Fingerprint: a.graph.Fingerprint, MaxParallelism: uint32(a.graph.MaxParallelism),
		Periodic: cps.Enabled, Interval: cps.Interval, Timeout: cps.Timeout, MinPause: cps.MinPause,
		ToleratedFailures: cps.ToleratedFailures, Retained: cps.Retained,
		FirstID: j.GetNextCheckpoint(), Limit: j.GetNextCheckpoint(),
		Restored: a.restore.GetCheckpoint(), Initial: a.restore == nil,
	}
	for _, v := range a.graph.Vertices {
		for i := range v.Parallelism {
			cfg.Tasks = append(cfg.Tasks, checkpoint.Task{
				ID: checkpoint.TaskID{Vertex: v.ID, Subtask: uint32(i)}, Source: v.Source, Worker: workerName,
			})
		}
	}
	var effects []checkpoint.Effect
	a.coord, effects = checkpoint.New(cfg, a.cfg.Clock.Now())
	a.carryOut(effects)
}

// settle commits what the last completed checkpoint has prepared and fences every attempt that may have left something open.
func (r *runner) settle() error {
	if !r.dir.prepared() {
		// No sink was ever started. Whatever kept the job from being prepared would keep a settling attempt too.
		return r.dir.update(func(j *raftv1.JobRecord) { fenced(j, j.GetAttempt()+1) })
	}
	program, err := r.cfg.Plan(0)
	if err != nil {
		return err
	}
	if len(extents(program.Graph)) == 0 {
		return nil
	}
	a := &attempt{runner: r, graph: program.Graph, events: newQueue(), restore: r.restorePoint()}
	if err := r.dir.beginAttempt(a.graph, true); err != nil {
		return err
	}
	a.worker = a.newWorker(a.events.put)
	defer a.worker.Close()
	a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Prepare{Prepare: a.prepare(true)}})
	deadline := time.NewTimer(settleWithin)
	defer deadline.Stop()
	for {
		select {
		case <-deadline.C:
			return fmt.Errorf("not settled within %v", settleWithin)
		case <-a.events.wake:
		}
		for _, e := range a.events.take() {
			switch {
			case e.GetRewritten() != nil:
				if err := a.replace(e.GetRewritten()); err != nil {
					return err
				}
			case e.GetPrepared() != nil:
				a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Start{Start: &workerv1.Start{Fence: a.former()}}})
			case e.GetStarted() != nil:
				a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}})
			case e.GetTaskFailed() != nil:
				return errors.New(e.GetTaskFailed().GetMessage())
			case e.GetClosed() != nil:
				return r.dir.update(func(j *raftv1.JobRecord) {
					fenced(j, j.GetAttempt()+1)
					settle(j, a.restore.GetCheckpoint())
				})
			}
		}
	}
}
