package streamtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// Source is a source in memory, fed by the test. Its records stay, so that a restored job can read them again.
type Source[T any] struct {
	splits []*split[T]
	ended  bool
}

// split is one split; a subtask reads it when the split's number modulo the parallelism is its own.
type split[T any] struct {
	records []Record[T]
	stalled bool
}

// Record is a record with its timestamp; the zero time means none.
type Record[T any] struct {
	Value T
	At    time.Time
}

var _ sources.Source[int] = (*Source[int])(nil)

// NewSource returns a source with the given number of splits and without end until [Source.End].
func NewSource[T any](splits int) *Source[T] {
	s := &Source[T]{}
	for range splits {
		s.AddSplit()
	}
	return s
}

// Values returns a source of one split that ends after the given records, which have no timestamps.
func Values[T any](values ...T) *Source[T] {
	s := NewSource[T](1)
	s.Push(0, values...)
	s.End()
	return s
}

// Push adds records without timestamps to a split.
func (s *Source[T]) Push(split int, values ...T) {
	for _, v := range values {
		s.PushAt(split, time.Time{}, v)
	}
}

// PushAt adds a record with a timestamp to a split.
func (s *Source[T]) PushAt(split int, at time.Time, v T) {
	s.splits[split].records = append(s.splits[split].records, Record[T]{v, at})
}

// End ends the input after the records pushed so far.
func (s *Source[T]) End() { s.ended = true }

// AddSplit adds a split, which is found with the next step of the job, and returns its number.
func (s *Source[T]) AddSplit() int {
	s.splits = append(s.splits, &split[T]{})
	return len(s.splits) - 1
}

// Stall makes a split slow to be read: until it is undone, neither are its records read nor is it known whether there are any.
func (s *Source[T]) Stall(split int, stalled bool) { s.splits[split].stalled = stalled }

// Kind implements sources.Source.
func (s *Source[T]) Kind() string { return "test" }

// Validate implements sources.Source.
func (s *Source[T]) Validate(sources.JobSettings) error { return nil }

// NewReader implements sources.Source.
func (s *Source[T]) NewReader(rc sources.ReaderContext) (sources.Reader[T], error) {
	return &reader[T]{source: s, rc: rc, next: make(map[int]int)}, nil
}

// reader reads the splits of one subtask.
type reader[T any] struct {
	source *Source[T]
	rc     sources.ReaderContext
	next   map[int]int // by split: the next record
}

func (r *reader[T]) owned() []int {
	var splits []int
	for i := r.rc.Subtask; i < len(r.source.splits); i += r.rc.Parallelism {
		splits = append(splits, i)
	}
	return splits
}

// Open implements sources.Reader.
func (r *reader[T]) Open(_ context.Context, restored []sources.Position, _ bool) error {
	for _, p := range restored {
		split, err := strconv.Atoi(p.Key)
		next, n := binary.Uvarint(p.Value)
		if err != nil || n != len(p.Value) {
			return fmt.Errorf("position of split %q is malformed", p.Key)
		}
		if split%r.rc.Parallelism == r.rc.Subtask {
			r.next[split] = int(next)
		}
	}
	return nil
}

// Fetch implements sources.Reader.
func (r *reader[T]) Fetch(context.Context) (any, error) {
	for _, i := range r.owned() {
		if s := r.source.splits[i]; s.stalled || r.next[i] < len(s.records) {
			return nil, nil
		}
	}
	if r.source.ended {
		return nil, io.EOF
	}
	return nil, nil
}

// Emit implements sources.Reader. Splits take turns, record by record.
func (r *reader[T]) Emit(_ any, out sources.Output[T], limit int) (bool, error) {
	owned := r.owned()
	for progress := true; progress; {
		progress = false
		for _, i := range owned {
			s := r.source.splits[i]
			if s.stalled || r.next[i] >= len(s.records) {
				continue
			}
			if limit == 0 {
				return true, nil
			}
			limit--
			rec := s.records[r.next[i]]
			r.next[i]++
			progress = true
			timestamp := operator.NoTimestamp
			if !rec.At.IsZero() {
				timestamp = rec.At.UnixMilli()
			}
			if err := out.Collect(out.Split(strconv.Itoa(i)), rec.Value, timestamp); err != nil {
				return false, err
			}
		}
	}
	for _, i := range owned {
		if !r.source.splits[i].stalled {
			out.CaughtUp(out.Split(strconv.Itoa(i)), r.rc.Now())
		}
	}
	return false, nil
}

// Positions implements sources.Reader.
func (r *reader[T]) Positions() ([]sources.Position, error) {
	var ps []sources.Position
	for _, i := range r.owned() {
		ps = append(ps, sources.Position{Key: strconv.Itoa(i), Value: binary.AppendUvarint(nil, uint64(r.next[i]))})
	}
	return ps, nil
}

// CheckpointCompleted implements sources.Reader.
func (r *reader[T]) CheckpointCompleted(uint64) {}

// Close implements sources.Reader.
func (r *reader[T]) Close() error { return nil }
