package checkpoint

import (
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// Effect is something for the driver to do. Effects are carried out in the order in which they were returned.
type Effect interface{ effect() }

// Trigger starts a checkpoint at the source tasks.
type Trigger struct {
	Checkpoint uint64
	// Stop: the sources emit nothing after this barrier until resumed.
	Stop bool
	// Full: complete state instead of deltas.
	Full bool
}

// Abort tells every worker to drop alignments of checkpoints up to this one.
type Abort struct{ Checkpoint uint64 }

// Resume tells every worker that its sources go on after a stop that failed.
type Resume struct{}

// WriteMetadata asks for the metadata file; [MetadataWritten] or [MetadataFailed] answers it.
type WriteMetadata struct {
	Checkpoint uint64
	// Name of the file below the storage root, see [MetadataName].
	Name     string
	Metadata *snapshotv1.CheckpointMetadata
}

// Propose asks for the log entry that is the checkpoint's commit point; [Decided] answers it.
type Propose struct {
	Completed *raftv1.CompletedCheckpoint
	// Target is the state that the job goes to with this checkpoint; unspecified when it goes on.
	Target jobv1.JobState
}

// Notify tells workers that the checkpoint is complete. It is repeated until each has acknowledged the commit.
type Notify struct {
	Checkpoint uint64
	Workers    []string
}

// Settle asks for the log entry that says that everything up to the checkpoint is committed. Repeating or losing it does no harm.
type Settle struct{ Checkpoint uint64 }

// ReserveIDs asks for the log entry that reserves ids up to, not including, Limit. The driver repeats it until it succeeds;
// [IDsReserved] answers it.
type ReserveIDs struct{ Limit uint64 }

// Export asks for savepoints of a checkpoint that is pinned in the log and whose commit every sink has acknowledged. The driver
// unpins it when all of them are written.
type Export struct {
	Checkpoint uint64
	// RequestIDs are those of the savepoints asked for.
	RequestIDs []string
	// StopID is the request id of a stop that asked for a savepoint as well; empty without one. The sources are paused until the
	// driver ends the job or sends [StopCancelled].
	StopID string
}

// Unpin asks for the log entry that unpins a checkpoint that will not be exported.
type Unpin struct{ Checkpoint uint64 }

// SavepointFailed answers a [RequestSavepoint].
type SavepointFailed struct{ RequestID, Reason string }

// Handover tells that the checkpoint of a [RequestHandover] is completed and committed everywhere.
type Handover struct{ Checkpoint uint64 }

// HandoverFailed answers a [RequestHandover]: its checkpoint failed, and the attempt goes on.
type HandoverFailed struct{ Reason string }

// StopFailed answers a [RequestStop]: the job goes on.
type StopFailed struct{ RequestID, Reason string }

// Finish tells that the job's last checkpoint is committed everywhere: the workers can close.
type Finish struct{ Checkpoint uint64 }

// FailAttempt asks for the attempt to be ended because too many checkpoints failed in a row.
type FailAttempt struct {
	Reason string
	// Storage: the failures were all trouble of checkpoint storage, so that a restart does not count.
	Storage bool
}

// Discard names files of checkpoints that never completed and that nothing can refer to any more.
type Discard struct{ Files []string }

func (Trigger) effect()         {}
func (Abort) effect()           {}
func (Resume) effect()          {}
func (WriteMetadata) effect()   {}
func (Propose) effect()         {}
func (Notify) effect()          {}
func (Settle) effect()          {}
func (ReserveIDs) effect()      {}
func (Export) effect()          {}
func (Unpin) effect()           {}
func (SavepointFailed) effect() {}
func (Handover) effect()        {}
func (HandoverFailed) effect()  {}
func (StopFailed) effect()      {}
func (Finish) effect()          {}
func (FailAttempt) effect()     {}
func (Discard) effect()         {}
