// Package sources is the contract of sources. Each system has a sub-package.
package sources

import (
	"context"
	"log/slog"
	"time"

	"github.com/weir-stream/weir/graph"
)

// Source describes an input and makes its readers. Implementations are plain values: they do no I/O before a reader is opened.
type Source[T any] interface {
	// Kind names the system, for example "kafka".
	Kind() string
	// Validate checks the settings without I/O, at plan time; it reports all problems.
	Validate(job JobSettings) error
	// NewReader makes the reader of one subtask.
	NewReader(rc ReaderContext) (Reader[T], error)
}

// JobSettings are the settings of a job that connectors check themselves against.
type JobSettings struct {
	Checkpoints graph.CheckpointConfig
	Parallelism int
	// Guarantee is the resolved guarantee of a sink; unused by sources.
	Guarantee graph.Guarantee
}

// ReaderContext is what a reader knows of its place.
type ReaderContext struct {
	ClusterID, JobID, JobName, UID string
	Attempt                        uint64
	Subtask, Parallelism           int
	Checkpoints                    graph.CheckpointConfig
	Logger                         *slog.Logger
	Counters                       Counters
	// Now tells the time.
	Now func() time.Time
}

// Counters are the figures that a reader keeps.
type Counters interface {
	// Skipped counts records dropped by policy; DeadLetters those written to a dead-letter topic; Lost those deleted by retention
	// before they were read.
	Skipped(n uint64)
	DeadLetters(n uint64)
	Lost(n uint64)
	// Lag sets the number of records not yet read; -1 when unknown.
	Lag(records int64)
}

// Waiter is implemented by the Counters of a reader whose waits are shown to people.
type Waiter interface {
	// Waiting enters what the reader waits for, as a completion of "waits for"; the returned function ends the wait.
	Waiting(what string) (end func())
}

// Waiting enters a wait with the counters, if they take it.
func Waiting(c Counters, what string) (end func()) {
	if w, ok := c.(Waiter); ok {
		return w.Waiting(what)
	}
	return func() {}
}

// SplitNamer is implemented by readers whose position keys are not for people.
type SplitNamer interface {
	// SplitName returns the name of a split for people, and how many of its records are not read yet, -1 when unknown. It is called
	// by the task's goroutine.
	SplitName(key string) (name string, lag int64)
}

// Reader reads the splits (partitions, files, ranges) that belong to one subtask.
//
// Fetch runs on a goroutine of its own, one call at a time. All other methods are called by the task's goroutine and may run
// concurrently with Fetch.
type Reader[T any] interface {
	// Open checks the outside world and restores positions. restored holds the entries of all former subtasks when the
	// parallelism changed or the reader shares splits dynamically; the reader keeps those it owns. fresh is true when the job
	// starts without any restore point. Open emits nothing.
	Open(ctx context.Context, restored []Position, fresh bool) error
	// Fetch waits for input, at most until ctx ends. It returns io.EOF when a bounded input is exhausted, and may return nil to
	// let the task look at Emit again (for example after new splits were found).
	Fetch(ctx context.Context) (fetched any, err error)
	// Emit passes at most limit records to out and reports whether some are left. Positions advance only here, also over records
	// that are skipped.
	Emit(fetched any, out Output[T], limit int) (more bool, err error)
	// Positions returns the position of every owned split, as of the last record emitted. It is called at each barrier, and once
	// right after Open: a split that is listed then holds event time back from the start, however slowly it is read.
	Positions() ([]Position, error)
	// CheckpointCompleted tells that the positions returned for checkpoint n are durable.
	CheckpointCompleted(n uint64)
	// Close releases everything; a running Fetch has returned.
	Close() error
}

// Position is the position of one split. Key identifies the split for good (for Kafka topic id and partition).
type Position struct {
	Key   string
	Value []byte
}

// Output takes the records of a reader. Splits are numbered by Split so that each has a watermark of its own.
type Output[T any] interface {
	// Split returns the number of the split with the given key, adding it when it is new. A new split holds the watermark back
	// until it has a record or is idle.
	Split(key string) int
	// Remove forgets a split that the reader no longer owns.
	Remove(split int)
	// Collect emits a record with the timestamp its system gave it, in milliseconds since the epoch, or operator.NoTimestamp.
	Collect(split int, v T, timestamp int64) error
	// CaughtUp tells that at time asOf everything that existed in the split had been emitted. A split without records that stays
	// caught up for the idle timeout is left out of the watermark. Elapsed time alone never makes a split idle.
	CaughtUp(split int, asOf time.Time)
}
