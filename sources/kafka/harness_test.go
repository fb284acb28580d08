package kafkasource_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/testlog"
	"github.com/weir-stream/weir/sources"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

func TestMain(m *testing.M) {
	kafkatest.Main(m, func() error { return goleak.Find() })
}

// counters are a reader's figures.
type counters struct{ skipped, deadLetters, lost, lag atomic.Int64 }

func (c *counters) Skipped(n uint64)     { c.skipped.Add(int64(n)) }
func (c *counters) DeadLetters(n uint64) { c.deadLetters.Add(int64(n)) }
func (c *counters) Lost(n uint64)        { c.lost.Add(int64(n)) }
func (c *counters) Lag(n int64)          { c.lag.Store(n) }

// output collects what a reader emits.
type output[T any] struct {
	splits   map[string]int
	values   []T
	times    []int64
	caughtUp map[int]time.Time
}

func (o *output[T]) Split(key string) int {
	if n, ok := o.splits[key]; ok {
		return n
	}
	o.splits[key] = len(o.splits)
	return o.splits[key]
}
func (o *output[T]) Remove(int) {}
func (o *output[T]) Collect(_ int, v T, timestamp int64) error {
	o.values = append(o.values, v)
	o.times = append(o.times, timestamp)
	return nil
}
func (o *output[T]) CaughtUp(split int, asOf time.Time) { o.caughtUp[split] = asOf }

// job drives one subtask's reader as a task does: fetches on one goroutine, everything else on the test's.
type job[T any] struct {
	t        *testing.T
	reader   sources.Reader[T]
	out      *output[T]
	counters *counters
	log      *testlog.Buffer
	fetched  chan any
	failed   chan error
	cancel   context.CancelFunc
	done     chan struct{}
	pending  any
}

type place struct {
	subtask, parallelism int
	restored             []sources.Position
	resumed              bool
	noCheckpoints        bool
}

func open[T any](t *testing.T, src sources.Source[T], p place) (*job[T], error) {
	t.Helper()
	j := &job[T]{
		t: t, counters: &counters{}, log: &testlog.Buffer{}, fetched: make(chan any), failed: make(chan error, 1), done: make(chan struct{}),
		out: &output[T]{splits: map[string]int{}, caughtUp: map[int]time.Time{}},
	}
	require.NoError(t, src.Validate(sources.JobSettings{}))
	now := time.Now
	var err error
	j.reader, err = src.NewReader(sources.ReaderContext{
		JobID: "job", UID: "in", Subtask: p.subtask, Parallelism: max(1, p.parallelism),
		Checkpoints: graph.CheckpointConfig{Enabled: !p.noCheckpoints}, Logger: slog.New(slog.NewTextHandler(j.log, nil)), Counters: j.counters, Now: now,
	})
	require.NoError(t, err)
	if err := j.reader.Open(t.Context(), p.restored, !p.resumed && len(p.restored) == 0); err != nil {
		return nil, errors.Join(err, j.reader.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	j.cancel = cancel
	go func() {
		defer close(j.done)
		for {
			fetched, err := j.reader.Fetch(ctx)
			if err != nil {
				j.failed <- err
				return
			}
			select {
			case j.fetched <- fetched:
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(j.stop)
	return j, nil
}

func start[T any](t *testing.T, src sources.Source[T], p place) *job[T] {
	t.Helper()
	j, err := open[T](t, src, p)
	require.NoError(t, err)
	return j
}

// stop closes the reader.
func (j *job[T]) stop() {
	if j.cancel == nil {
		return
	}
	j.cancel()
	<-j.done
	j.cancel = nil
	require.NoError(j.t, j.reader.Close())
}

// step emits what is there, at most wait long for it, and returns the reader's error.
func (j *job[T]) step(wait time.Duration) error {
	if j.pending == nil {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case j.pending = <-j.fetched:
		case err := <-j.failed:
			j.failed <- err
			return err
		case <-timer.C:
			return nil
		}
	}
	more, err := j.reader.Emit(j.pending, j.out, 100)
	if err != nil {
		return err
	}
	if !more {
		j.pending = nil
	}
	return nil
}

// until emits until cond holds.
func (j *job[T]) until(cond func() bool) {
	j.t.Helper()
	require.NoError(j.t, j.tryUntil(cond))
}

var errTooLong = errors.New("the condition did not come true")

func (j *job[T]) tryUntil(cond func() bool) error {
	for begin := time.Now(); !cond(); {
		if time.Since(begin) > 20*time.Second {
			return errTooLong
		}
		if err := j.step(50 * time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// fail emits until the reader fails.
func (j *job[T]) fail() error {
	j.t.Helper()
	err := j.tryUntil(func() bool { return false })
	require.NotErrorIs(j.t, err, errTooLong)
	return err
}

// untilValues emits until n values are out, and then what comes without waiting.
func (j *job[T]) untilValues(n int) []T {
	j.t.Helper()
	j.until(func() bool { return len(j.out.values) >= n })
	require.NoError(j.t, j.step(0))
	return j.out.values
}

// checkpoint returns the positions of a completed checkpoint.
func (j *job[T]) checkpoint(n uint64) []sources.Position {
	j.t.Helper()
	ps, err := j.reader.Positions()
	require.NoError(j.t, err)
	j.reader.CheckpointCompleted(n)
	return ps
}

func decodeNumber(r kafkasource.Record) (int, error) { return strconv.Atoi(string(r.Value)) }

func sorted(values []int) []int {
	out := slices.Clone(values)
	slices.Sort(out)
	return out
}

func numbers(first, last int) []int {
	var out []int
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}
