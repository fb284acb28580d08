package checkpoint

import (
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// Event is something that happened. The driver passes each one to [Coordinator.Handle] with the time.
type Event interface{ event() }

// Tick tells that the time returned by [Coordinator.Deadline] has come. A tick too many is harmless.
type Tick struct{}

// Ack tells that a task's snapshot is durable.
type Ack struct {
	Checkpoint uint64
	Handle     *snapshotv1.TaskHandle
	// DeltaBytes is the number of bytes newly written.
	DeltaBytes uint64
	// Alignment, Sync and Async are what the task took; they are shown and decide nothing.
	Alignment, Sync, Async time.Duration
}

// Decline tells that a task could not store its snapshot.
type Decline struct {
	Checkpoint uint64
	Task       TaskID
	Reason     string
}

// Interrupted tells that commands or acknowledgements may have been lost, since the conversation with a worker broke or was taken up
// again. A checkpoint that still collects snapshots is given up without being counted as a failure, and what asked for it is done
// by the next one.
type Interrupted struct{ Reason string }

// MetadataWritten answers [WriteMetadata]: the file is durable.
type MetadataWritten struct {
	Checkpoint uint64
	Metadata   *snapshotv1.Segment
}

// MetadataFailed answers [WriteMetadata].
type MetadataFailed struct {
	Checkpoint uint64
	Reason     string
}

// Outcome is what became of a proposal.
type Outcome uint8

// The outcomes.
const (
	// Committed: the entry is in the log and was accepted.
	Committed Outcome = iota + 1
	// Rejected: the entry is in the log and was refused, or is proven never to get there.
	Rejected
	// Unknown: the entry may be in the log. The driver finds out and sends another Decided.
	Unknown
)

// Decided answers [Propose].
type Decided struct {
	Checkpoint uint64
	Outcome    Outcome
	// Reason says why, unless the outcome is Committed.
	Reason string
}

// CommitAcked tells that a worker's sinks have committed everything up to the checkpoint.
type CommitAcked struct {
	Worker     string
	Checkpoint uint64
}

// Activity tells that something changed after the snapshot of a checkpoint, 0 for "before the first one".
type Activity struct{ Since uint64 }

// InputEnded tells that every source task of a worker has exhausted its input. When all have, a checkpoint is taken without waiting
// for the interval.
type InputEnded struct{ Worker string }

// RequestSavepoint asks for a savepoint; [Export] or [SavepointFailed] with the same id answers it.
type RequestSavepoint struct{ RequestID string }

// RequestHandover asks for a checkpoint for the next attempt to start from, as a rescale does; [Handover] or [HandoverFailed] answers
// it, unless the job stops or ends meanwhile. Repeating it while it is not answered is harmless.
type RequestHandover struct{}

// RequestStop asks for a last checkpoint after which the sources emit nothing. With Savepoint, [Export] follows its completion and
// the job ends only when the driver says so, else the completion ends the job and [Finish] follows.
type RequestStop struct {
	RequestID string
	Savepoint bool
}

// StopCancelled undoes a stop, also one whose savepoint could not be exported: the sources resume. It comes too late for a stop
// without savepoint whose completion has been proposed, and for one that has ended the job.
type StopCancelled struct{}

// AttemptEnded tells that the attempt is over, for whatever reason. Nothing is triggered or proposed afterwards.
type AttemptEnded struct{ Reason string }

// IDsReserved answers [ReserveIDs]: ids from First up to, not including, Limit may be used.
type IDsReserved struct{ First, Limit uint64 }

func (Tick) event()             {}
func (Ack) event()              {}
func (Decline) event()          {}
func (Interrupted) event()      {}
func (MetadataWritten) event()  {}
func (MetadataFailed) event()   {}
func (Decided) event()          {}
func (CommitAcked) event()      {}
func (Activity) event()         {}
func (InputEnded) event()       {}
func (RequestSavepoint) event() {}
func (RequestHandover) event()  {}
func (RequestStop) event()      {}
func (StopCancelled) event()    {}
func (AttemptEnded) event()     {}
func (IDsReserved) event()      {}
