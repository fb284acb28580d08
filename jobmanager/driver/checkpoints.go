package driver

import (
	"context"
	"errors"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

var tickEvent = checkpoint.Tick{}

// beginCheckpoints starts the coordinator of the attempt that has just begun to run.
func (j *job) beginCheckpoints() {
	cp := j.rec.GetGraph().GetCheckpoints()
	_, own := fsm.LastCheckpoint(j.rec)
	cfg := checkpoint.Config{
		ClusterID: j.m.cfg.ClusterID, JobID: j.id, Attempt: j.att.number,
		Fingerprint: j.rec.GetGraph().GetFingerprint(), MaxParallelism: j.rec.GetGraph().GetMaxParallelism(),
		Tasks:    j.att.tasks,
		Periodic: cp.GetEnabled(), Interval: ms(cp.GetIntervalMs()), Timeout: ms(cp.GetTimeoutMs()), MinPause: ms(cp.GetMinPauseMs()),
		ToleratedFailures: int(cp.GetToleratedFailures()), Retained: int(cp.GetRetained()),
		FirstID: j.rec.GetNextCheckpoint(), Limit: j.rec.GetNextCheckpoint(), Reserve: reserveIDs,
		Restored: j.rec.GetRestore().GetCheckpoint(),
		Initial:  !own, Full: !own && j.rec.GetFrom() != nil,
	}
	if j.reservedID > 0 {
		// Only this leadership knows which of its ids are unused.
		cfg.FirstID, cfg.Limit = min(j.usedID+1, j.reservedID), j.reservedID
	}
	if j.att.adopted {
		j.clearFormer()
		cfg.Adopted, cfg.History, cfg.Stopping = true, j.att.retained, j.rec.GetStopRequestId() != ""
		if last := lastOfAttempt(j.rec); last != nil {
			cfg.Completed, cfg.Uncommitted = last.GetId(), !last.GetSettled()
		}
	}
	c, effects := checkpoint.New(cfg, time.Now())
	j.att.coordinator = c
	j.covers.started(time.Now())
	for _, ev := range j.outstanding() {
		effects = append(effects, c.Handle(time.Now(), ev)...)
	}
	j.carryOut(effects)
}

// outstanding lists what happened before there was a coordinator to be told.
func (j *job) outstanding() []checkpoint.Event {
	var events []checkpoint.Event
	if id := j.rec.GetStopRequestId(); id != "" {
		events = append(events, checkpoint.RequestStop{RequestID: id, Savepoint: j.rec.GetStopSavepointDir() != ""})
	}
	for id := range j.savepoints {
		events = append(events, checkpoint.RequestSavepoint{RequestID: id})
	}
	for _, w := range j.att.workers {
		if w.changed > 0 {
			events = append(events, checkpoint.Activity{Since: w.changed - 1})
			j.covers.changed(w.changed-1, time.Now())
		}
		if w.inputEnded {
			events = append(events, checkpoint.InputEnded{Worker: w.tm})
		}
	}
	return events
}

func abortCommand(checkpoint uint64) *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_AbortCheckpoint{AbortCheckpoint: &workerv1.AbortCheckpoint{Checkpoint: checkpoint}}}
}

func completeCommand(checkpoint uint64) *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_CompleteCheckpoint{CompleteCheckpoint: &workerv1.CompleteCheckpoint{Checkpoint: checkpoint}}}
}

func resumeCommand() *workerv1.Command {
	return &workerv1.Command{Command: &workerv1.Command_ResumeSources{ResumeSources: &workerv1.ResumeSources{}}}
}

func ms(v uint64) time.Duration { return time.Duration(v) * time.Millisecond }

// onCheckpointEvent passes a worker's report to the coordinator.
func (j *job) onCheckpointEvent(w *worker, ev *workerv1.Event) {
	if s := ev.GetStatistics(); s != nil {
		j.status.statistics(s)
		return
	}
	switch e := ev.GetEvent().(type) {
	case *workerv1.Event_CheckpointAck:
		faultpoint.Hit(faultpoint.AckReceived)
		j.coordinate(checkpoint.Ack{
			Checkpoint: e.CheckpointAck.GetCheckpoint(), Handle: e.CheckpointAck.GetHandle(), DeltaBytes: e.CheckpointAck.GetDeltaBytes(),
			Alignment: ms(e.CheckpointAck.GetAlignmentMs()), Sync: ms(e.CheckpointAck.GetSyncMs()), Async: ms(e.CheckpointAck.GetAsyncMs()),
		})
	case *workerv1.Event_CheckpointDeclined:
		d := e.CheckpointDeclined
		j.coordinate(checkpoint.Decline{
			Checkpoint: d.GetCheckpoint(), Task: checkpoint.TaskID{Vertex: d.GetVertex(), Subtask: d.GetSubtask()}, Reason: d.GetReason(),
		})
	case *workerv1.Event_CommitAcked:
		faultpoint.Hit(faultpoint.CommitAcked)
		j.coordinate(checkpoint.CommitAcked{Worker: w.tm, Checkpoint: e.CommitAcked.GetCheckpoint()})
	case *workerv1.Event_Activity:
		if e.Activity.GetEnded() {
			w.inputEnded = true
			j.coordinate(checkpoint.InputEnded{Worker: w.tm})
		} else {
			w.changed = max(w.changed, e.Activity.GetSinceCheckpoint()+1)
			j.covers.changed(e.Activity.GetSinceCheckpoint(), time.Now())
			j.coordinate(checkpoint.Activity{Since: e.Activity.GetSinceCheckpoint()})
		}
	}
}

// coordinate passes an event to the coordinator, if there is one already, and carries out what follows.
func (j *job) coordinate(ev checkpoint.Event) {
	if j.att == nil || j.att.coordinator == nil {
		return
	}
	j.carryOut(j.att.coordinator.Handle(time.Now(), ev))
}

// carryOut does effects in order. An effect's answer is handled after the effects before it are done, so follow-ups queue behind.
func (j *job) carryOut(effects []checkpoint.Effect) {
	att := j.att
	for len(effects) > 0 {
		e := effects[0]
		effects = effects[1:]
		answer := j.effect(att, e)
		if j.phase == phaseDone {
			return
		}
		if answer != nil {
			effects = append(effects, att.coordinator.Handle(time.Now(), answer)...)
		}
	}
}

// effect does one effect and returns the event that answers it, if there is one already.
func (j *job) effect(att *attempt, e checkpoint.Effect) checkpoint.Event {
	if j.att != att && attemptOnly(e) {
		return nil // an effect before this one ended the attempt
	}
	switch e := e.(type) {
	case checkpoint.Trigger:
		j.usedID = max(j.usedID, e.Checkpoint)
		j.m.cfg.Metrics.triggered.Inc()
		trigger := &workerv1.TriggerCheckpoint{Checkpoint: e.Checkpoint, Stop: e.Stop, Full: e.Full}
		for _, w := range j.living(func(w *worker) bool { return w.sources }) {
			j.command(w.tm, &workerv1.Command{Command: &workerv1.Command_TriggerCheckpoint{TriggerCheckpoint: trigger}})
			faultpoint.Hit(faultpoint.TriggerSent)
		}
	case checkpoint.Abort:
		att.aborted = e.Checkpoint
		j.m.cfg.Metrics.aborted.Inc()
		j.commandAll(abortCommand(e.Checkpoint), nil)
	case checkpoint.Resume:
		j.commandAll(resumeCommand(), nil)
	case checkpoint.WriteMetadata:
		faultpoint.Hit(faultpoint.AllAcknowledged)
		j.writeMetadata(att.number, e)
	case checkpoint.Propose:
		return j.complete(e)
	case checkpoint.Notify:
		att.notified = max(att.notified, e.Checkpoint)
		for _, tm := range e.Workers {
			j.command(tm, completeCommand(e.Checkpoint))
			faultpoint.Hit(faultpoint.NoticeSent)
		}
	case checkpoint.Settle:
		j.propose(&raftv1.Command{Command: &raftv1.Command_SettleCheckpoint{SettleCheckpoint: &raftv1.SettleCheckpoint{JobId: j.id, Checkpoint: e.Checkpoint}}})
		faultpoint.Hit(faultpoint.SettledLogged)
	case checkpoint.ReserveIDs:
		return j.reserve(e.Limit)
	case checkpoint.Export:
		j.export(att.number, e)
	case checkpoint.Unpin:
		j.unpin(e.Checkpoint)
	case checkpoint.SavepointFailed:
		if j.takingUp {
			break // the next attempt takes it
		}
		j.answerSavepoint(e.RequestID, savepointReply{err: savepointError(e.Reason)})
	case checkpoint.StopFailed:
		j.stopFailed(e)
	case checkpoint.Handover:
		j.handOver(e)
	case checkpoint.HandoverFailed:
		j.rescaleFailed(e.Reason)
	case checkpoint.Finish:
		j.finishWorkers()
	case checkpoint.FailAttempt:
		class := j.slowness()
		if e.Storage {
			class = workerv1.FailureClass_FAILURE_CLASS_STORAGE
		}
		j.fail(failure{class: class, message: e.Reason})
	case checkpoint.Discard:
		j.clean.discard(e.Files)
	}
	return nil
}

// attemptOnly reports whether an effect makes sense only while its attempt is the current one.
func attemptOnly(e checkpoint.Effect) bool {
	switch e.(type) {
	case checkpoint.Settle, checkpoint.Export, checkpoint.Unpin, checkpoint.SavepointFailed, checkpoint.StopFailed, checkpoint.Discard:
		return false
	}
	return true
}

// reserve reserves checkpoint ids. An entry that was repeated because its outcome was unknown may meet itself in the log: the ids below
// its limit are then given up and further ones are asked for.
func (j *job) reserve(limit uint64) checkpoint.Event {
	limit = max(limit, j.rec.GetNextCheckpoint()+1)
	res, ok := j.proposeReservation(limit)
	for ok && errors.Is(res.Err, fsm.ErrAlreadyReserved) {
		limit = j.rec.GetNextCheckpoint() + reserveIDs
		res, ok = j.proposeReservation(limit)
	}
	if !ok || res.Err != nil {
		return nil // the job is ending, so that no further id is needed
	}
	if j.reservedID == 0 {
		j.usedID = res.FirstID - 1
	}
	j.reservedID = limit
	faultpoint.Hit(faultpoint.IDsReserved)
	return checkpoint.IDsReserved{First: res.FirstID, Limit: limit}
}

func (j *job) proposeReservation(limit uint64) (fsm.Result, bool) {
	return j.propose(&raftv1.Command{Command: &raftv1.Command_ReserveCheckpointIds{ReserveCheckpointIds: &raftv1.ReserveCheckpointIDs{
		JobId: j.id, Limit: limit,
	}}})
}

// complete proposes the commit point of a checkpoint. When the outcome of the write is unknown, the record tells after a barrier.
func (j *job) complete(e checkpoint.Propose) checkpoint.Event {
	id := e.Completed.GetId()
	started := time.Now()
	faultpoint.Hit(faultpoint.CompletionDue)
	res, err := j.m.cfg.Log.Propose(j.ctx, &raftv1.Command{Command: &raftv1.Command_CompleteCheckpoint{CompleteCheckpoint: &raftv1.CompleteCheckpoint{
		JobId: j.id, Checkpoint: e.Completed, Target: e.Target,
	}}})
	j.m.cfg.Metrics.commitSeconds.Observe(time.Since(started).Seconds())
	if err != nil {
		if !j.barrier() {
			j.halt(err)
			return nil
		}
		if !hasCompleted(j.rec, id) {
			return checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: err.Error()}
		}
		res = fsm.Result{Job: j.rec}
	}
	j.adopt(res.Job)
	if res.Err != nil {
		return checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Rejected, Reason: res.Err.Error()}
	}
	faultpoint.Hit(faultpoint.CompletionLogged)
	j.m.cfg.Metrics.completed.Inc()
	j.covers.completed(id)
	j.m.cfg.Metrics.duration.Observe(float64(e.Completed.GetDurationMs()) / 1000)
	j.clean.request(j.rec)
	if e.Target != jobv1.JobState_JOB_STATE_UNSPECIFIED {
		j.logger.Info("last checkpoint of the job is complete", "checkpoint", id, "target", e.Target.String())
		j.answerStops(nil)
	}
	return checkpoint.Decided{Checkpoint: id, Outcome: checkpoint.Committed}
}

func hasCompleted(rec *raftv1.JobRecord, id uint64) bool {
	for _, c := range rec.GetCheckpoints() {
		if c.GetId() == id {
			return true
		}
	}
	return false
}

// writeMetadata makes the metadata file durable beside the driver.
func (j *job) writeMetadata(attempt uint64, e checkpoint.WriteMetadata) {
	ctx, box := j.ctx, j.box
	j.clean.remember(e.Checkpoint, e.Metadata)
	j.m.goDo(func() {
		ctx, cancel := context.WithTimeout(ctx, storageTimeout)
		defer cancel()
		segment, err := putMetadata(ctx, j.m.cfg.Bucket, e.Name, e.Metadata)
		if err != nil {
			box.put(coordinatorEvent{attempt, checkpoint.MetadataFailed{Checkpoint: e.Checkpoint, Reason: err.Error()}})
			return
		}
		segment.Checkpoint = e.Checkpoint
		faultpoint.Hit(faultpoint.MetadataWritten)
		box.put(coordinatorEvent{attempt, checkpoint.MetadataWritten{Checkpoint: e.Checkpoint, Metadata: segment}})
	})
}

// endCoordinator tells the coordinator that its attempt is over.
func (j *job) endCoordinator(reason string) {
	if j.att == nil || j.att.coordinator == nil {
		return
	}
	j.coordinate(checkpoint.AttemptEnded{Reason: reason})
	j.covers.ended(time.Now())
	if j.att != nil {
		now := time.Now()
		j.finished, j.finishedAt = j.att.coordinator.Statistics(now), now
	}
}

// finishWorkers asks for the clean close of all workers: the last checkpoint is committed everywhere.
func (j *job) finishWorkers() {
	j.enter(phaseClosing, closeTimeout)
	j.commandAll(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}}, nil)
	j.closedWhenComplete()
}

func (j *job) closedWhenComplete() {
	if j.phase != phaseClosing || !j.att.every(func(w *worker) bool { return w.closed }) {
		return
	}
	j.closed = true
	j.stopWorkers(j.proceed)
}
