package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/internal/keyed"
	"github.com/weir-stream/weir/operator/watermark"
	"github.com/weir-stream/weir/sources"
)

// Config describes a source operator.
type Config[T any] struct {
	Source sources.Source[T]
	// Timestamp returns a record's event time in milliseconds since the epoch, given the one its system gave it, or
	// operator.NoTimestamp for none. Nil keeps the system's.
	Timestamp func(v T, timestamp int64) int64
	// Watermarks makes watermarks of the timestamps; the zero value makes none.
	Watermarks watermark.Strategy
}

// New returns the operator that reads a source.
func New[T any](cfg Config[T]) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[T](outs)
		return &instance[T]{cfg: cfg, out: output[T]{timestamp: cfg.Timestamp, next: out}}, err
	})
}

// instance is one subtask of a source.
type instance[T any] struct {
	operator.Base
	cfg    Config[T]
	rt     *operator.Runtime
	reader sources.Reader[T]
	out    output[T]
	ended  bool
	told   int64 // the highest watermark given out
}

var (
	_ operator.SourceInstance     = (*instance[int])(nil)
	_ operator.CheckpointListener = (*instance[int])(nil)
	_ operator.SplitReporter      = (*instance[int])(nil)
)

// Input implements operator.Instance.
func (s *instance[T]) Input() any { return nil }

// Open implements operator.Instance.
func (s *instance[T]) Open(ctx context.Context, rt *operator.Runtime) error {
	s.rt = rt
	s.told = keyed.Watermark(rt.Restored)
	restored, err := decodeState(rt.Restored)
	if err != nil {
		return operator.Fatal(err)
	}
	// A source without watermarks still knows which of its splits are silent: a timestamp assigner behind it asks.
	strategy := s.cfg.Watermarks
	if !strategy.Enabled() {
		strategy = strategy.WithIdleTimeout(watermark.DefaultIdleTimeout)
	}
	s.out.tracker = watermark.NewTracker(strategy, s.told, restored.largest)
	s.reader, err = s.cfg.Source.NewReader(sources.ReaderContext{
		ClusterID: rt.ClusterID, JobID: rt.JobID, JobName: rt.JobName, UID: rt.Operator.UID,
		Attempt: rt.Attempt, Subtask: rt.Subtask, Parallelism: rt.Parallelism, Checkpoints: rt.Checkpoints,
		Logger: rt.Logger, Counters: counters{rt.Stats}, Now: rt.Clock.Now,
	})
	if err != nil {
		return err
	}
	if err := s.reader.Open(ctx, restored.positions, len(rt.Restored) == 0); err != nil {
		return err
	}
	// Splits are known to the tracker before the first record of any of them: a split that is slow to be read holds event time back.
	_, err = s.positions()
	return err
}

// positions returns the reader's positions and makes their splits known to the tracker.
func (s *instance[T]) positions() ([]sources.Position, error) {
	ps, err := s.reader.Positions()
	if err != nil {
		return nil, fmt.Errorf("reading positions: %w", err)
	}
	for _, p := range ps {
		s.out.tracker.Split(p.Key)
	}
	return ps, nil
}

// Fetch implements operator.SourceInstance.
func (s *instance[T]) Fetch(ctx context.Context) (any, error) { return s.reader.Fetch(ctx) }

// Emit implements operator.SourceInstance.
func (s *instance[T]) Emit(fetched any, limit int) (bool, error) {
	before := s.out.records
	more, err := s.reader.Emit(fetched, &s.out, limit)
	s.rt.Stats.In.Add(s.out.records - before)
	return more, err
}

// CurrentWatermark implements operator.WatermarkSource.
func (s *instance[T]) CurrentWatermark(time.Time) (int64, bool) {
	wm, idle := s.out.tracker.Current()
	if wm > s.told {
		// Consumers do not look at the watermark of an idle channel: the last one goes out before the source falls idle.
		s.told = wm
		return wm, false
	}
	return s.told, idle
}

// Watermark implements operator.Instance; a source hears only of the end of its input.
func (s *instance[T]) Watermark(wm int64) (int64, error) { return wm, nil }

// Snapshot implements operator.Instance.
func (s *instance[T]) Snapshot(context.Context, operator.Barrier) (operator.Finish, error) {
	positions, err := s.positions()
	if err != nil {
		return nil, err
	}
	snapshot := keyed.Snapshot(s.rt.Operator.UID, s.told)
	snapshot.OperatorStates = encodeState(positions, s.out.tracker)
	snapshot.Ended = s.ended
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) { return snapshot, nil }, nil
}

// fewSplits is how many of the splits that hold event time back are told of.
const fewSplits = 3

// Splits implements operator.SplitReporter.
func (s *instance[T]) Splits() operator.SplitReport {
	strategy := s.out.tracker.Strategy()
	r := operator.SplitReport{Enabled: strategy.Enabled(), IdleTimeout: strategy.IdleTimeout(), Highest: operator.MinWatermark}
	if !r.Enabled || s.ended {
		return r
	}
	s.out.tracker.Splits(func(p watermark.Split) {
		r.Highest = max(r.Highest, p.Watermark)
		if !p.Idle {
			r.Lowest = append(r.Lowest, operator.SplitProgress{Name: p.Key, Watermark: p.Watermark, Quiet: p.Quiet, Lag: -1})
		}
	})
	slices.SortFunc(r.Lowest, func(a, b operator.SplitProgress) int {
		return cmp.Or(cmp.Compare(a.Watermark, b.Watermark), cmp.Compare(a.Name, b.Name))
	})
	r.Lowest = r.Lowest[:min(len(r.Lowest), fewSplits)]
	if named, ok := s.reader.(sources.SplitNamer); ok {
		for i := range r.Lowest {
			r.Lowest[i].Name, r.Lowest[i].Lag = named.SplitName(r.Lowest[i].Name)
		}
	}
	return r
}

// CheckpointCompleted implements operator.CheckpointListener.
func (s *instance[T]) CheckpointCompleted(n uint64) error {
	s.reader.CheckpointCompleted(n)
	return nil
}

// EndInput implements operator.Instance.
func (s *instance[T]) EndInput() error {
	s.ended = true
	return nil
}

// Close implements operator.Instance.
func (s *instance[T]) Close() error {
	if s.reader == nil {
		return nil
	}
	return s.reader.Close()
}

// output is what the reader emits into.
type output[T any] struct {
	tracker   *watermark.Tracker
	timestamp func(T, int64) int64
	next      operator.Collector[T]
	records   uint64
}

var _ sources.Output[int] = (*output[int])(nil)

// Split implements sources.Output.
func (o *output[T]) Split(key string) int { return o.tracker.Split(key) }

// Remove implements sources.Output.
func (o *output[T]) Remove(split int) { o.tracker.Remove(split) }

// CaughtUp implements sources.Output.
func (o *output[T]) CaughtUp(split int, asOf time.Time) { o.tracker.CaughtUp(split, asOf) }

// Collect implements sources.Output.
func (o *output[T]) Collect(split int, v T, timestamp int64) error {
	if o.timestamp != nil {
		timestamp = o.timestamp(v, timestamp)
	}
	o.tracker.Record(split, timestamp)
	o.records++
	return o.next.Collect(v, timestamp)
}

// counters passes a reader's figures to the task.
type counters struct{ stats *operator.Stats }

// Skipped implements sources.Counters.
func (c counters) Skipped(n uint64) { c.stats.Skipped.Add(n) }

// DeadLetters implements sources.Counters.
func (c counters) DeadLetters(n uint64) { c.stats.DeadLetters.Add(n) }

// Lost implements sources.Counters.
func (c counters) Lost(n uint64) { c.stats.Lost.Add(n) }

// Lag implements sources.Counters.
func (c counters) Lag(records int64) { c.stats.Lag.Store(records) }

// Waiting implements sources.Waiter.
func (c counters) Waiting(what string) (end func()) { return c.stats.Waits.Begin(what) }

// ErrState is returned when the restored state of a source cannot be read.
var ErrState = errors.New("state of a source")
