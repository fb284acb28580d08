package statebackend

import (
	"log/slog"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
)

// Config is what a Backend knows of its place.
type Config struct {
	// Operator is the operator's uid, for error messages.
	Operator string
	// KeyGroups are the key groups that the backend owns.
	KeyGroups keygroup.Range
	// MaxParallelism is the number of key groups of the job; 0 means keygroup.DefaultMaxParallelism.
	MaxParallelism int
	// Dir is a local scratch directory for segments being written.
	Dir string
	// NamePrefix is the start of the names of the backend's segments on checkpoint storage, without a trailing slash. No other
	// backend, and no former attempt of this one, may use it.
	NamePrefix string
	// Segments stores and fetches segments.
	Segments SegmentStore
	// Restored are the snapshots to start from; the backend takes the rows of its own key groups. Empty for a start from nothing.
	Restored []*snapshotv1.KeyedSnapshot
	// AllowDroppedState permits restored state that no declared state takes up; it is dropped.
	AllowDroppedState bool
	// Post runs fn on the backend's goroutine, soon, without blocking the caller; an error of fn fails the task. Nil means that
	// restored state is never loaded ahead, only when asked for.
	Post func(fn func() error)
	// MemoryBudget bounds the state in memory, in bytes, by estimate; 0 means no bound. Rows that the segments of a completed checkpoint
	// have are evicted beyond it and read again when they are asked for; changed ones stay until a checkpoint is completed, see
	// [Backend.Pressure].
	MemoryBudget int64
	// Logger takes rare messages; nil discards them.
	Logger *slog.Logger
}
