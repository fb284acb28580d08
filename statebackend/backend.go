package statebackend

import (
	"context"
	"log/slog"

	"github.com/weir-stream/weir/codec"
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
	// NamePrefix is the start of the names of the backend's segments on checkpoint storage, without a trailing slash.
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
	// Logger takes rare messages; nil discards them.
	Logger *slog.Logger
}

// Backend is the keyed state of one operator instance.
type Backend[K comparable] struct{}

// New returns a backend for keys of type K. States are declared on it before it is opened.
func New[K comparable](cfg Config, key codec.Key[K]) *Backend[K] { panic("not built yet") }

// Open matches the declared states with the restored ones and opens the restored segments.
func (b *Backend[K]) Open(ctx context.Context) error { panic("not built yet") }

// Freeze fixes the state as it is now for a checkpoint, in constant time.
func (b *Backend[K]) Freeze(checkpoint uint64, full bool) *Frozen { panic("not built yet") }

// CheckpointCompleted tells that checkpoint n is completed.
func (b *Backend[K]) CheckpointCompleted(n uint64) { panic("not built yet") }

// Bytes estimates the size of the state in bytes.
func (b *Backend[K]) Bytes() int64 { panic("not built yet") }

// Close releases everything.
func (b *Backend[K]) Close() error { panic("not built yet") }

// Frozen is the state at a barrier.
type Frozen struct{}

// Write makes the frozen state durable. It runs on a goroutine of its own, once.
func (f *Frozen) Write(ctx context.Context) (*snapshotv1.KeyedSnapshot, error) {
	panic("not built yet")
}

// Value is one value per key.
type Value[K comparable, V any] struct{}

// NewValue declares a state.
func NewValue[K comparable, V any](b *Backend[K], name string, c codec.Codec[V]) *Value[K, V] {
	panic("not built yet")
}

// Get returns the value of k.
func (s *Value[K, V]) Get(k K) (v V, ok bool, err error) { panic("not built yet") }

// Put sets the value of k. It must not be modified afterwards.
func (s *Value[K, V]) Put(k K, v V) error { panic("not built yet") }

// Delete removes the value of k.
func (s *Value[K, V]) Delete(k K) error { panic("not built yet") }

// Map is a map per key.
type Map[K, MK comparable, V any] struct{}

// NewMap declares a state.
func NewMap[K, MK comparable, V any](b *Backend[K], name string, kc codec.Key[MK], c codec.Codec[V]) *Map[K, MK, V] {
	panic("not built yet")
}

// Get returns the value of mk in the map of k.
func (s *Map[K, MK, V]) Get(k K, mk MK) (v V, ok bool, err error) { panic("not built yet") }

// Put sets the value of mk in the map of k. It must not be modified afterwards.
func (s *Map[K, MK, V]) Put(k K, mk MK, v V) error { panic("not built yet") }

// Delete removes mk from the map of k.
func (s *Map[K, MK, V]) Delete(k K, mk MK) error { panic("not built yet") }

// Range calls fn for the entries of k's map in the order of the encoded map keys until fn returns false.
func (s *Map[K, MK, V]) Range(k K, fn func(mk MK, v V) bool) error { panic("not built yet") }

// Clear removes the map of k.
func (s *Map[K, MK, V]) Clear(k K) error { panic("not built yet") }

// List is a list per key.
type List[K comparable, V any] struct{}

// NewList declares a state.
func NewList[K comparable, V any](b *Backend[K], name string, c codec.Codec[V]) *List[K, V] {
	panic("not built yet")
}

// Append adds values to the list of k. They must not be modified afterwards.
func (s *List[K, V]) Append(k K, vs ...V) error { panic("not built yet") }

// All returns the list of k, which must not be modified.
func (s *List[K, V]) All(k K) ([]V, error) { panic("not built yet") }

// Clear removes the list of k.
func (s *List[K, V]) Clear(k K) error { panic("not built yet") }

// Panes holds accumulators per pane and key.
type Panes[K comparable, A any] struct{}

// NewPanes declares a state.
func NewPanes[K comparable, A any](b *Backend[K], name string, c codec.Codec[A]) *Panes[K, A] {
	panic("not built yet")
}

// Acquire returns the accumulator of k in a pane for changing in place, the zero value when existed is false. The pointer is valid
// until the next call on the backend.
func (s *Panes[K, A]) Acquire(pane int64, k K) (acc *A, existed bool, err error) {
	panic("not built yet")
}

// Get returns the accumulator of k in a pane, which must not be modified.
func (s *Panes[K, A]) Get(pane int64, k K) (a A, ok bool, err error) { panic("not built yet") }

// Each calls fn for every key of a pane, in no particular order.
func (s *Panes[K, A]) Each(pane int64, fn func(k K, a A) error) error { panic("not built yet") }

// Drop removes a pane with everything in it.
func (s *Panes[K, A]) Drop(pane int64) error { panic("not built yet") }

// First returns the lowest pane.
func (s *Panes[K, A]) First() (pane int64, ok bool) { panic("not built yet") }

// All returns the panes in ascending order.
func (s *Panes[K, A]) All() []int64 { panic("not built yet") }

// Timers is a set of (time, key) pairs in order of time.
type Timers[K comparable] struct{}

// NewTimers declares a state.
func NewTimers[K comparable](b *Backend[K], name string) *Timers[K] { panic("not built yet") }

// Add sets a timer; setting it again changes nothing.
func (s *Timers[K]) Add(at int64, k K) error { panic("not built yet") }

// Delete removes a timer if it is set.
func (s *Timers[K]) Delete(at int64, k K) error { panic("not built yet") }

// Next returns the earliest time for which a timer is set.
func (s *Timers[K]) Next() (at int64, ok bool) { panic("not built yet") }

// Due removes and then fires every timer up to upTo, in order of time; timers added meanwhile and due fire too.
func (s *Timers[K]) Due(upTo int64, fire func(at int64, k K) error) error { panic("not built yet") }
