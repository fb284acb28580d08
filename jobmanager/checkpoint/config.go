package checkpoint

import (
	"strconv"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// TaskID names one subtask of one vertex.
type TaskID struct {
	Vertex  string
	Subtask uint32
}

// String returns the name that people see, such as "totals[3]".
func (t TaskID) String() string {
	return t.Vertex + "[" + strconv.FormatUint(uint64(t.Subtask), 10) + "]"
}

// Task is one task of the attempt and the worker that runs it.
type Task struct {
	ID     TaskID
	Source bool
	// Worker names the worker process that runs the task; commits are acknowledged by worker.
	Worker string
}

// Config describes one attempt. Durations and counts below zero count as zero.
type Config struct {
	// ClusterID, JobID, Attempt, Fingerprint and MaxParallelism go into the metadata of each checkpoint.
	ClusterID, JobID string
	Attempt          uint64
	Fingerprint      string
	MaxParallelism   uint32
	// Tasks are all tasks of the attempt; metadata lists them in this order.
	Tasks []Task

	// Periodic turns regular checkpoints on. Without it, checkpoints are taken for savepoints, for a stop and when the input has
	// ended.
	Periodic bool
	// Interval is the time from one trigger to the next; 0 means 1 s.
	Interval time.Duration
	// Timeout bounds the time from the trigger until the metadata is written; 0 means no bound.
	Timeout time.Duration
	// MinPause is the least time between the end of a checkpoint and the next trigger.
	MinPause time.Duration
	// ToleratedFailures is the number of consecutive failed checkpoints that the attempt survives.
	ToleratedFailures int
	// Retained is the number of completed checkpoints the log keeps; at least 1.
	Retained int

	// FirstID and Limit bound the reserved ids: FirstID ≤ id < Limit. Both are the log's next id when none is reserved yet.
	FirstID, Limit uint64
	// Reserve is how many ids are asked for at a time; 0 means 1000.
	Reserve uint64

	// Restored is the checkpoint the attempt started from; 0 for a start from nothing.
	Restored uint64
	// Initial asks for a checkpoint at once, without waiting for activity: the attempt started from nothing or from a savepoint, so
	// no checkpoint of its own holds its positions.
	Initial bool
	// Adopted: a former leader has begun the attempt. A checkpoint is taken at once.
	Adopted bool
	// Completed is the newest completed checkpoint of an adopted attempt, 0 for none; Uncommitted: not every worker is known to have
	// committed it. Workers are told of it again in any case, since the former leader may not have got to it.
	Completed   uint64
	Uncommitted bool
	// Stopping: the former leader may have sent the barrier of a stop, which is asked for again.
	Stopping bool
	// History holds the retained checkpoints of an adopted attempt, oldest first: what they refer to is protected.
	History []*snapshotv1.CheckpointMetadata

	// Full makes every checkpoint full until one is completed, so that none needs the files of what the job started from.
	Full bool
}

const (
	defaultReserve  = 1000
	defaultInterval = time.Second
	// notifyEvery is the time after which a notice of completion is repeated.
	notifyEvery = time.Second
	// settleWithin bounds the delay between the last acknowledgement of a commit and the log entry that says so.
	settleWithin = 10 * time.Second
	// historySize is the number of finished checkpoints that Statistics remembers.
	historySize = 20
)
