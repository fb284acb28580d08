package generator

import (
	"errors"
	"fmt"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// DefaultSplits is the number of splits of a source that chooses none, and so the largest parallelism of use.
const DefaultSplits = 8

// Source makes numbered records. Its methods return changed copies.
type Source[T any] struct {
	record func(n uint64) T
	count  uint64 // 0 for no end
	rate   float64
	splits int
	start  time.Time
	step   time.Duration
	timed  bool
}

var _ sources.Source[int] = Source[int]{}

// New returns a source without end of the records that record makes of the numbers 0, 1, 2, …; record must always return the same
// for a number, and is called from several goroutines.
func New[T any](record func(n uint64) T) Source[T] {
	return Source[T]{record: record, splits: DefaultSplits}
}

// Count ends the input after n records; 0 means never.
func (s Source[T]) Count(n uint64) Source[T] {
	s.count = n
	return s
}

// Rate limits the source to that many records a second, over all of its subtasks; 0 means as fast as they are taken.
func (s Source[T]) Rate(perSecond float64) Source[T] {
	s.rate = perSecond
	return s
}

// Splits sets the number of splits, [DefaultSplits] without. It cannot change while the job has state.
func (s Source[T]) Splits(n int) Source[T] {
	s.splits = n
	return s
}

// Timestamps gives record n the timestamp start + n·step. Without it records have the time at which they are made.
func (s Source[T]) Timestamps(start time.Time, step time.Duration) Source[T] {
	s.start, s.step, s.timed = start, step, true
	return s
}

// Kind implements sources.Source.
func (s Source[T]) Kind() string { return "generator" }

// ErrSettings is returned for settings out of bounds, and for a restore with another number of splits.
var ErrSettings = errors.New("generator settings")

// Validate implements sources.Source.
func (s Source[T]) Validate(sources.JobSettings) error {
	var errs []error
	if s.record == nil {
		errs = append(errs, fmt.Errorf("%w: no function that makes the records", ErrSettings))
	}
	if s.splits < 1 {
		errs = append(errs, fmt.Errorf("%w: %d splits; at least one is needed", ErrSettings, s.splits))
	}
	if s.rate < 0 {
		errs = append(errs, fmt.Errorf("%w: the rate %g is negative", ErrSettings, s.rate))
	}
	return errors.Join(errs...)
}

// NewReader implements sources.Source.
func (s Source[T]) NewReader(rc sources.ReaderContext) (sources.Reader[T], error) {
	return &reader[T]{source: s, rc: rc}, nil
}

// timestamp returns the timestamp of a record made now.
func (s *Source[T]) timestamp(n uint64, now int64) int64 {
	if !s.timed {
		return now
	}
	at := s.start.Add(time.Duration(n) * s.step)
	if at.IsZero() {
		return operator.NoTimestamp
	}
	return at.UnixMilli()
}

// size returns the number of records of a bounded split.
func (s *Source[T]) size(split int) uint64 {
	if s.count <= uint64(split) {
		return 0
	}
	return (s.count-uint64(split)-1)/uint64(s.splits) + 1
}
