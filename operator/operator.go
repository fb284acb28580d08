package operator

import (
	"context"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
)

// Event times are milliseconds since the Unix epoch.
const (
	// NoTimestamp is the timestamp of a record that has none.
	NoTimestamp int64 = math.MinInt64
	// MinWatermark is the watermark before the first one.
	MinWatermark int64 = math.MinInt64
	// MaxWatermark says that no record will follow; only the end of bounded input sends it.
	MaxWatermark int64 = math.MaxInt64
)

// Collector takes the records of one edge. A record must not be modified once it was collected.
type Collector[T any] interface {
	Collect(v T, timestamp int64) error
}

// Expecter is implemented by a Collector that likes to know of records before it gets them, to have at hand what it needs for them.
type Expecter[T any] interface {
	// Expect tells of a few dozen records that are about to be collected. It changes nothing and keeps none of them.
	Expect(vs []T)
}

// Program is a compiled job: its graph, and how to build the instances of its operators and edges.
type Program struct {
	Graph *graph.Graph
	// Factories has one entry per operator, by uid.
	Factories map[string]Factory
	// Edges has one entry per vertex edge, by edge id.
	Edges map[string]EdgeType
}

// Factory builds instances of one operator.
type Factory interface {
	// New builds an instance. outs holds a Collector[Out] for each outgoing edge of the operator, in the order of
	// Graph.Chained followed by Graph.Edges. New does no I/O.
	New(outs []any) (Instance, error)
}

// Instance is one parallel instance of an operator. After Open, all methods are called by the task's goroutine only.
//
// Any error fails the task, and with it the attempt.
type Instance interface {
	// Input returns the Collector[In] that takes the operator's records; nil for a source.
	Input() any
	// Open restores the instance's state and, for connectors, checks the outside world. It must emit nothing and must not begin
	// anything that a former attempt's recovery could collide with.
	Open(ctx context.Context, rt *Runtime) error
	// Watermark tells that event time has advanced to wm: the instance fires what is due and returns the watermark for its
	// consumers, normally wm itself. Watermarks never go back; it is not called for an equal or lower one.
	Watermark(wm int64) (int64, error)
	// Snapshot is called at a barrier. What must happen before the next record happens in the call, which should take well under
	// 10 ms; the rest happens in the returned function, once, on another goroutine. A nil function means no state.
	Snapshot(ctx context.Context, b Barrier) (Finish, error)
	// EndInput tells that the input is exhausted; MaxWatermark has been delivered. More barriers follow.
	EndInput() error
	// Close releases everything. It must work after a failed Open and be quick; an open transaction is aborted, a prepared one
	// never.
	Close() error
}

// Barrier describes the checkpoint that a snapshot belongs to.
type Barrier struct {
	Checkpoint uint64
	// Full asks for the complete state instead of a delta.
	Full bool
}

// Finish completes a snapshot off the task's goroutine. A [statebackend.StorageError] makes the task decline the checkpoint; any
// other error fails the task.
type Finish func(ctx context.Context) (*snapshotv1.OperatorSnapshot, error)

// CheckpointListener is implemented by instances that want to know the fate of checkpoints.
type CheckpointListener interface {
	// CheckpointCompleted tells that checkpoint n, and so every earlier one, needs no more than n's snapshot. Notices may be late,
	// repeated, or skip numbers.
	CheckpointCompleted(n uint64) error
}

// TimerOwner is implemented by instances with processing-time timers.
type TimerOwner interface {
	// NextTimer returns the earliest processing time that is due next, in milliseconds since the epoch; ok is false without one.
	NextTimer() (at int64, ok bool)
	// OnProcessingTime fires every timer due at now.
	OnProcessingTime(now int64) error
}

// WatermarkSource is implemented by instances that make watermarks: sources and timestamp assigners. The task asks after each batch;
// while there is none nothing changes.
type WatermarkSource interface {
	// CurrentWatermark returns the instance's own watermark at processing time now, and whether it is idle: with nothing to
	// contribute until further records come.
	CurrentWatermark(now time.Time) (wm int64, idle bool)
}

// Pusher is implemented by instances that hold records back for a moment, to send more of them at once.
type Pusher interface {
	// Push tells that the input is worked off and the task is about to wait, so that holding back gains little. It must not block.
	Push()
}

// IdleListener is implemented by instances that make watermarks of the records they get. The task tells them when nothing upstream
// has anything to contribute (the chain's source reports idle, or every input channel is idle), and when that ends.
type IdleListener interface {
	InputIdle(idle bool)
}

// SourceInstance is implemented by sources.
type SourceInstance interface {
	Instance
	WatermarkSource
	// Fetch waits for input. It is called on a goroutine of its own, one call at a time, concurrently with the other methods.
	// io.EOF means that the bounded input is exhausted.
	Fetch(ctx context.Context) (fetched any, err error)
	// Emit passes at most limit records of what Fetch returned downstream and reports whether some are left, for which it is
	// called again. Positions advance only here.
	Emit(fetched any, limit int) (more bool, err error)
}

// Unchanging is implemented by fetched values that may leave every position where it is, such as news about the end of a split. They
// alone are no reason for a checkpoint, so that an idle job takes none.
type Unchanging interface {
	// Unchanging reports whether emitting the value moves no position and no record.
	Unchanging() bool
}

// Committer is implemented by transactional sinks.
type Committer interface {
	// RecoverCommit commits restored transactions (restore, phase one). It is idempotent and asks nothing when cs is empty.
	RecoverCommit(ctx context.Context, cs []*snapshotv1.Committable) error
	// RecoverAbort ends whatever former attempts left open (restore, phase two). Only afterwards may this instance begin.
	RecoverAbort(ctx context.Context, scope Scope) error
	// Commit commits every transaction prepared for a checkpoint up to n, oldest first, beside the task, and then calls done from
	// any goroutine, exactly once. Nothing to do is success.
	Commit(n uint64, done func(error))
}

// Rewriter is implemented by transactional sinks that can write lost output again. The task calls RecoverOrRewrite instead of
// RecoverCommit when the restore point has kept records.
type Rewriter interface {
	Committer
	// RecoverOrRewrite commits restored transactions, those of each group in their order. From the first of a group that is proven
	// aborted on, those of the group are written again, all groups' into one transaction, which is prepared but not committed.
	// The answer is nil when everything is committed.
	RecoverOrRewrite(ctx context.Context, groups []Restored) (*workerv1.Replacement, error)
	// CommitRewritten commits what RecoverOrRewrite prepared.
	CommitRewritten(ctx context.Context) error
}

// Restored are transactions of a restore point that stay in their order, oldest first.
type Restored []RestoredTransaction

// RestoredTransaction is one transaction that a restore has to finish.
type RestoredTransaction struct {
	// Committable names what the transaction wrote, where that is kept.
	Committable *snapshotv1.Committable
	// StandsFor is what the restore point lists: the transaction itself, or what it has replaced.
	StandsFor []*workerv1.ReplacedTransactions
}

// Scope is the share of one instance in ending what former attempts left: of each attempt the ids of subtasks s with
// s mod Parallelism = Subtask.
type Scope struct {
	Subtask, Parallelism int
	Attempts             []FormerAttempt
	// Again tells that all this has been ended before, so that only what was opened since needs to be. The instance may be running.
	Again bool
}

// FormerAttempt bounds the transactional ids that one sink used in a former attempt.
type FormerAttempt struct {
	Attempt     uint64
	Parallelism int
	Slots       int
}

// Clock tells the time. Processing time is whatever it says.
type Clock interface {
	Now() time.Time
}

// Runtime is what a task gives an instance at Open.
type Runtime struct {
	ClusterID, JobID, JobName string
	Attempt                   uint64
	// Vertex is the id of the task's vertex; with Subtask it names the task.
	Vertex               string
	Operator             graph.Operator
	Subtask, Parallelism int
	MaxParallelism       int
	KeyGroups            keygroup.Range
	Checkpoints          graph.CheckpointConfig
	Clock                Clock
	Logger               *slog.Logger
	Stats                *Stats
	// Dir is a local scratch directory of this instance, emptied at the attempt's end.
	Dir string
	// StateMemory bounds the keyed state that the instance holds in memory, in bytes, by estimate; 0 means no bound.
	StateMemory int64
	// Segments stores and fetches the instance's state files.
	Segments statebackend.SegmentStore
	// Restored holds the operator's snapshots of the restore point: its own when the parallelism is unchanged, else those of all
	// former subtasks, of which the instance takes its share. Empty for a start from nothing.
	Restored []*snapshotv1.OperatorSnapshot
	// AllowDroppedState makes restored states that the instance no longer declares be left out instead of refused.
	AllowDroppedState bool
	// SettleOnly tells that the instance is opened to end or to look at transactions, and that it will write nothing but, perhaps, lost
	// output again.
	SettleOnly bool
	// Losses says which outcomes of restored transactions RecoverCommit takes.
	Losses LossPolicy
	// Fail fails the task from any goroutine.
	Fail func(error)
	// Post runs fn on the task's goroutine between records, soon. It may be called from any goroutine and never blocks; after the
	// task ended it does nothing. An error of fn fails the task.
	Post func(fn func() error)
}

// Stats are an instance's figures beyond records in and out. They are totals since the attempt's start, except Lag.
type Stats struct {
	// In and Out are published in batches: In by sources, Out by sinks.
	In, Out     atomic.Uint64
	Late        atomic.Uint64
	Skipped     atomic.Uint64
	DeadLetters atomic.Uint64
	Lost        atomic.Uint64
	Lag         atomic.Int64 // records not yet read; -1 when unknown
	StateBytes  atomic.Int64
	// Waits are what the instance waits for outside.
	Waits Waits
	// Transactions tells how old the transactions of a sink are.
	Transactions Transactions
}
