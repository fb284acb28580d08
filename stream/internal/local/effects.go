package local

import (
	"errors"
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// handle passes an event to the coordinator and carries out what follows.
func (a *attempt) handle(ev checkpoint.Event) {
	if a.coord == nil || a.end != nil {
		return
	}
	a.carryOut(a.coord.Handle(a.cfg.Clock.Now(), ev))
}

// carryOut carries out effects in order. What an effect leads to is handled after all of them.
func (a *attempt) carryOut(effects []checkpoint.Effect) {
	var answers []checkpoint.Event
	for _, e := range effects {
		if a.end != nil {
			return
		}
		if answer := a.carryOutOne(e); answer != nil {
			answers = append(answers, answer)
		}
	}
	for _, ev := range answers {
		a.handle(ev)
	}
}

func (a *attempt) carryOutOne(e checkpoint.Effect) (answer checkpoint.Event) {
	switch e := e.(type) {
	case checkpoint.Trigger:
		a.worker.Do(&workerv1.Command{Command: &workerv1.Command_TriggerCheckpoint{
			TriggerCheckpoint: &workerv1.TriggerCheckpoint{Checkpoint: e.Checkpoint, Stop: e.Stop, Full: e.Full},
		}})
	case checkpoint.Abort:
		a.cfg.Logger.Warn("checkpoint failed", "checkpoint", e.Checkpoint)
		a.worker.Do(&workerv1.Command{Command: &workerv1.Command_AbortCheckpoint{
			AbortCheckpoint: &workerv1.AbortCheckpoint{Checkpoint: e.Checkpoint},
		}})
	case checkpoint.Resume:
		a.worker.Do(&workerv1.Command{Command: &workerv1.Command_ResumeSources{ResumeSources: &workerv1.ResumeSources{}}})
	case checkpoint.WriteMetadata:
		return a.writeMetadata(e)
	case checkpoint.Propose:
		return a.propose(e)
	case checkpoint.Notify:
		a.worker.Do(&workerv1.Command{Command: &workerv1.Command_CompleteCheckpoint{
			CompleteCheckpoint: &workerv1.CompleteCheckpoint{Checkpoint: e.Checkpoint},
		}})
	case checkpoint.Settle:
		// A lost note costs only that a restore asks the sinks once more.
		if err := a.dir.update(func(j *raftv1.JobRecord) { settle(j, e.Checkpoint) }); err != nil {
			if !a.uncertain(err) {
				a.cfg.Logger.Warn("settled checkpoint not recorded", "err", err)
			}
		}
	case checkpoint.ReserveIDs:
		first := a.dir.job().GetNextCheckpoint()
		if err := a.dir.update(func(j *raftv1.JobRecord) { j.NextCheckpoint = max(j.NextCheckpoint, e.Limit) }); err != nil {
			a.end = failure(fmt.Errorf("reserve checkpoint ids: %w", err))
			return nil
		}
		return checkpoint.IDsReserved{First: first, Limit: a.dir.job().GetNextCheckpoint()}
	case checkpoint.Discard:
		if err := a.dir.store.remove(e.Files); err != nil {
			a.cfg.Logger.Warn("files of failed checkpoints not deleted", "err", err)
		}
	case checkpoint.StopFailed:
		switch {
		case a.target != 0: // The job is ending by itself.
		case a.stops < stopTries:
			return a.requestStop()
		default:
			a.end = &ending{how: canceled, message: e.Reason}
		}
	case checkpoint.Finish:
		a.worker.Do(&workerv1.Command{Command: &workerv1.Command_Finish{Finish: &workerv1.Finish{}}})
	case checkpoint.FailAttempt:
		a.end = &ending{how: failed, message: e.Reason, class: workerv1.FailureClass_FAILURE_CLASS_RESTART}
		if e.Storage {
			a.end.class = workerv1.FailureClass_FAILURE_CLASS_STORAGE
		}
	}
	// There are no savepoints here, and so no effects about them.
	return nil
}

func (a *attempt) writeMetadata(e checkpoint.WriteMetadata) checkpoint.Event {
	data, err := checkpointfile.Encode(e.Metadata)
	if err == nil {
		err = a.dir.store.put(e.Name, data)
	}
	if err != nil {
		return checkpoint.MetadataFailed{Checkpoint: e.Checkpoint, Reason: err.Error()}
	}
	faultpoint.Hit(faultpoint.LocalMetadataWritten)
	segment := checkpointfile.Segment(e.Name, data)
	segment.Checkpoint = e.Checkpoint
	return checkpoint.MetadataWritten{Checkpoint: e.Checkpoint, Metadata: segment}
}

// propose is the commit point.
func (a *attempt) propose(e checkpoint.Propose) checkpoint.Event {
	n := e.Completed.GetId()
	former := slices.Clone(a.dir.job().GetCheckpoints())
	if err := a.dir.complete(e.Completed, e.Target, a.graph.Checkpoints.Retained); err != nil {
		if a.uncertain(err) {
			return checkpoint.Decided{Checkpoint: n, Outcome: checkpoint.Unknown, Reason: err.Error()}
		}
		return checkpoint.Decided{Checkpoint: n, Outcome: checkpoint.Rejected, Reason: err.Error()}
	}
	faultpoint.Hit(faultpoint.LocalCompletionRecorded)
	a.cfg.Logger.Debug("checkpoint completed", "checkpoint", n, "bytes", e.Completed.GetDeltaBytes(), "ms", e.Completed.GetDurationMs())
	switch e.Target {
	case jobv1.JobState_JOB_STATE_FINISHED:
		a.target = finished
	case jobv1.JobState_JOB_STATE_STOPPED:
		a.target = stopped
	}
	if err := a.dir.drop(former); err != nil {
		a.cfg.Logger.Warn("files of former checkpoints not deleted", "err", err)
	}
	return checkpoint.Decided{Checkpoint: n, Outcome: checkpoint.Committed}
}

// uncertain reports whether a change of the record has an unknown outcome, and then ends the run: the next start reads what is there.
func (a *attempt) uncertain(err error) bool {
	if !errors.Is(err, ErrUncertain) {
		return false
	}
	a.end = &ending{how: failed, message: err.Error(), class: workerv1.FailureClass_FAILURE_CLASS_FATAL}
	return true
}
