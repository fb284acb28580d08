package checkpoint

import (
	"fmt"
	"strings"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// stage is how far a checkpoint has come.
type stage uint8

const (
	collecting stage = iota // tasks have not all acknowledged
	writing                 // the metadata file is being written
	proposed                // only the log can tell
)

// run is the checkpoint between its trigger and the decision about it.
type run struct {
	id         uint64
	triggered  time.Time
	stage      stage
	stop, full bool
	forced     bool     // it answers Coordinator.force
	handover   bool     // it answers Coordinator.handover
	savepoints []string // requests that it answers
	handles    map[TaskID]*snapshotv1.TaskHandle
	delta      uint64
	phases     phases
	proposal   *raftv1.CompletedCheckpoint
	target     jobv1.JobState
	unknown    bool // the log could not tell yet
}

// failure says why a checkpoint failed.
type failure struct {
	reason  string
	storage bool // trouble of checkpoint storage
}

func (c *Coordinator) trigger(now time.Time) {
	r := &run{
		id:         c.nextID,
		triggered:  now,
		full:       c.cfg.Full,
		forced:     c.force,
		handover:   c.handover,
		savepoints: c.savepoints,
		handles:    make(map[TaskID]*snapshotv1.TaskHandle, len(c.cfg.Tasks)),
	}
	c.nextID++
	c.savepoints = nil
	c.force, c.urgent, c.handover = false, false, false
	c.lastTrigger = now
	if c.stop != nil {
		c.stop.taken, c.stop.paused = true, true
		r.stop = true
	}
	c.current = r
	c.emit(Trigger{Checkpoint: r.id, Stop: r.stop, Full: r.full})
	c.reserve()
}

func (c *Coordinator) ack(now time.Time, ev Ack) {
	r := c.current
	if r == nil || r.id != ev.Checkpoint || r.stage != collecting {
		c.late(ev)
		return
	}
	task := TaskID{Vertex: ev.Handle.GetVertex(), Subtask: ev.Handle.GetSubtask()}
	if _, repeated := r.handles[task]; repeated || !c.has(task) {
		return
	}
	r.handles[task] = ev.Handle
	r.delta += ev.DeltaBytes
	r.phases.add(task, now.Sub(r.triggered), ev)
	if len(r.handles) < len(c.cfg.Tasks) {
		return
	}
	handles := c.handles(r)
	if name := c.files.unprotected(r.id, c.cfg.Restored, handles); name != "" {
		c.fail(now, failure{reason: "it needs " + name + ", which no retained checkpoint protects"})
		return
	}
	r.stage = writing
	c.emit(WriteMetadata{
		Checkpoint: r.id,
		Name:       MetadataName(c.cfg.ClusterID, c.cfg.JobID, r.id),
		Metadata:   BuildMetadata(c.cfg, r.id, r.triggered, handles),
	})
}

func (c *Coordinator) has(task TaskID) bool {
	_, known := c.tasks[task]
	return known
}

// handles returns the handles that have come, in the order of the tasks.
func (c *Coordinator) handles(r *run) []*snapshotv1.TaskHandle {
	handles := make([]*snapshotv1.TaskHandle, 0, len(r.handles))
	for _, t := range c.cfg.Tasks {
		if h, ok := r.handles[t.ID]; ok {
			handles = append(handles, h)
		}
	}
	return handles
}

// late takes an acknowledgement that came too late to count: its files are useless.
func (c *Coordinator) late(ev Ack) {
	if names := c.files.late(ev.Checkpoint, c.completed, ownFiles(ev.Checkpoint, ev.Handle)); len(names) > 0 {
		c.emit(Discard{Files: names})
	}
}

func (c *Coordinator) decline(now time.Time, ev Decline) {
	if r := c.current; r != nil && r.id == ev.Checkpoint && r.stage == collecting {
		c.fail(now, failure{reason: fmt.Sprintf("%s could not store its snapshot: %s", ev.Task, ev.Reason), storage: true})
	}
}

// expire fails the checkpoint in flight once its time is up. A proposed one has no time limit: only the log decides about it.
func (c *Coordinator) expire(now time.Time) {
	r := c.current
	if r == nil || r.stage == proposed || c.cfg.Timeout <= 0 || now.Sub(r.triggered) < c.cfg.Timeout {
		return
	}
	if r.stage == writing {
		c.fail(now, failure{reason: fmt.Sprintf("metadata was not written within %v", c.cfg.Timeout), storage: true})
		return
	}
	waiting := c.waitingFor(r)
	c.fail(now, failure{reason: fmt.Sprintf("timed out after %v waiting for %d of %d tasks: %s",
		c.cfg.Timeout, len(waiting), len(c.cfg.Tasks), some(waiting))})
}

func (c *Coordinator) waitingFor(r *run) []string {
	switch {
	case r.stage == writing:
		return []string{"the metadata file"}
	case r.unknown:
		return []string{"the log to tell whether the checkpoint is completed"}
	case r.stage == proposed:
		return []string{"the log"}
	}
	var names []string
	for _, t := range c.cfg.Tasks {
		if _, ok := r.handles[t.ID]; !ok {
			names = append(names, t.ID.String())
		}
	}
	return names
}

// some lists names for people.
func some(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (c *Coordinator) metadataWritten(now time.Time, ev MetadataWritten) {
	r := c.current
	if r == nil || r.id != ev.Checkpoint || r.stage != writing {
		if names := c.files.late(ev.Checkpoint, c.completed, []string{ev.Metadata.GetName()}); len(names) > 0 {
			c.emit(Discard{Files: names})
		}
		return
	}
	handles := c.handles(r)
	var committables uint32
	final := true
	for _, h := range handles {
		committables += h.GetCommittables()
		final = final && h.GetEnded()
	}
	r.stage = proposed
	r.proposal = &raftv1.CompletedCheckpoint{
		Id:            r.id,
		Attempt:       c.cfg.Attempt,
		Metadata:      ev.Metadata,
		Origins:       Origins(r.id, handles),
		TriggeredAtMs: r.triggered.UnixMilli(),
		DeltaBytes:    r.delta,
		TotalBytes:    TotalBytes(handles),
		Final:         final,
		Stop:          r.stop,
		DurationMs:    uint64(max(0, now.Sub(r.triggered)).Milliseconds()),
		Committables:  committables,
		// A savepoint must outlive retention until it has been copied.
		Pinned: len(r.savepoints) > 0 || r.stop && c.stop.savepoint,
	}
	r.target = c.target(r)
	c.emit(Propose{Completed: r.proposal, Target: r.target})
}

// target: what the user asked for goes before what the input did. A stop with savepoint ends the job only after the export.
func (c *Coordinator) target(r *run) jobv1.JobState {
	switch {
	case r.stop && c.stop.savepoint:
		return jobv1.JobState_JOB_STATE_UNSPECIFIED
	case r.stop:
		return jobv1.JobState_JOB_STATE_STOPPED
	case r.proposal.GetFinal():
		return jobv1.JobState_JOB_STATE_FINISHED
	}
	return jobv1.JobState_JOB_STATE_UNSPECIFIED
}

func (c *Coordinator) decided(now time.Time, ev Decided) {
	r := c.current
	if r == nil || r.id != ev.Checkpoint || r.stage != proposed {
		return
	}
	switch ev.Outcome {
	case Committed:
		c.complete(now)
	case Rejected:
		c.fail(now, failure{reason: "the log refused it: " + ev.Reason})
	default:
		r.unknown = true
	}
}

// complete takes note of what the log has decided.
func (c *Coordinator) complete(now time.Time) {
	r := c.current
	c.current = nil
	c.lastEnd = now
	c.failures = 0
	c.completed = r.id
	c.cfg.Full = false
	c.history.add(c.describe(r, now, StateCompleted), now)
	ends := r.target != jobv1.JobState_JOB_STATE_UNSPECIFIED
	// Once the input has ended, a checkpoint that does not end the job is followed by one that does.
	c.force = c.force || r.proposal.GetFinal() || len(c.sources) > 0 && len(c.inputEnded) == len(c.sources)
	if names := c.files.completed(r.id, c.cfg.Retained, c.handles(r)); len(names) > 0 {
		c.emit(Discard{Files: names})
	}
	c.commits.complete(r.id, r.proposal.GetCommittables() > 0)
	x := export{checkpoint: r.id, requestIDs: r.savepoints}
	if r.stop && c.stop.savepoint {
		x.stopID = c.stop.requestID
	}
	switch {
	case x.stopID != "" || len(x.requestIDs) > 0:
		c.exports = append(c.exports, x)
	case r.proposal.GetPinned():
		// Its stop was cancelled while the log was deciding.
		c.emit(Unpin{Checkpoint: r.id})
	}
	if r.handover {
		c.handoverAt = r.id
	}
	if ends {
		c.phase = closing
		c.refuseSavepoints("the job is ending")
		if c.stop != nil && !r.stop {
			c.emit(StopFailed{RequestID: c.stop.requestID, Reason: "the job is already ending"})
		}
	}
}

// fail gives up the checkpoint in flight. Its transactions stay: the next checkpoint subsumes them.
func (c *Coordinator) fail(now time.Time, f failure) {
	r := c.current
	c.drop(now, f.reason)
	for _, id := range r.savepoints {
		c.emit(SavepointFailed{RequestID: id, Reason: fmt.Sprintf("checkpoint %d: %s", r.id, f.reason)})
	}
	if r.stop {
		c.emit(Resume{})
		c.emit(StopFailed{RequestID: c.stop.requestID, Reason: fmt.Sprintf("checkpoint %d: %s", r.id, f.reason)})
		c.stop = nil
	}
	if r.handover {
		c.emit(HandoverFailed{Reason: fmt.Sprintf("checkpoint %d: %s", r.id, f.reason)})
	}
	if r.stop || len(r.savepoints) > 0 || r.handover {
		return
	}
	c.storageOnly = f.storage && (c.failures == 0 || c.storageOnly)
	c.failures++
	tolerated := max(0, c.cfg.ToleratedFailures)
	if c.failures <= tolerated {
		return
	}
	reason := fmt.Sprintf("checkpoint %d: %s", r.id, f.reason)
	if c.failures > 1 {
		reason = fmt.Sprintf("%d checkpoints failed in a row, %d are tolerated; the last one was %s", c.failures, tolerated, reason)
	}
	c.emit(FailAttempt{Reason: reason, Storage: c.storageOnly})
	c.end(now, reason)
}

// drop makes the checkpoint in flight one that never completes.
func (c *Coordinator) drop(now time.Time, reason string) {
	r := c.current
	c.current = nil
	c.lastEnd = now
	c.force = c.force || r.forced
	c.history.add(c.failed(r, now, reason), now)
	var names []string
	for _, h := range c.handles(r) {
		names = append(names, ownFiles(r.id, h)...)
	}
	if r.proposal != nil {
		names = append(names, r.proposal.GetMetadata().GetName())
	}
	c.files.failed(r.id, names)
	c.emit(Abort{Checkpoint: r.id})
}
