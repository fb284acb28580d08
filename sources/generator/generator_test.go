package generator_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/sources/generator"
)

// output gathers records.
type output struct {
	values     []uint64
	timestamps []int64
	caughtUp   int
}

func (o *output) Split(key string) int { return int(key[0]) }
func (o *output) Remove(int)           {}
func (o *output) Collect(_ int, v uint64, at int64) error {
	o.values, o.timestamps = append(o.values, v), append(o.timestamps, at)
	return nil
}
func (o *output) CaughtUp(int, time.Time) { o.caughtUp++ }

type counters struct{ lag int64 }

func (c *counters) Skipped(uint64)     {}
func (c *counters) DeadLetters(uint64) {}
func (c *counters) Lost(uint64)        {}
func (c *counters) Lag(records int64)  { c.lag = records }

func number(n uint64) uint64 { return n }

func open(t require.TestingT, s generator.Source[uint64], subtask, parallelism int, restored []sources.Position) (sources.Reader[uint64], *counters) {
	require.NoError(t, s.Validate(sources.JobSettings{}))
	c := &counters{}
	r, err := s.NewReader(sources.ReaderContext{Subtask: subtask, Parallelism: parallelism, Counters: c, Now: time.Now})
	require.NoError(t, err)
	require.NoError(t, r.Open(context.Background(), restored, restored == nil))
	return r, c
}

// read reads at most limit records and reports whether the input has ended.
func read(t require.TestingT, r sources.Reader[uint64], out *output, limit int) bool {
	for limit > 0 {
		fetched, err := r.Fetch(context.Background())
		if errors.Is(err, io.EOF) {
			return true
		}
		require.NoError(t, err)
		for more := true; more && limit > 0; {
			n := min(limit, 7)
			before := len(out.values)
			more, err = r.Emit(fetched, out, n)
			require.NoError(t, err)
			limit -= len(out.values) - before
		}
	}
	return false
}

func TestNumbersComeInOrder(t *testing.T) {
	out := &output{}
	r, c := open(t, generator.New(number).Count(1000), 0, 1, nil)
	require.True(t, read(t, r, out, 2000))
	require.Len(t, out.values, 1000)
	require.True(t, slices.IsSorted(out.values))
	require.Zero(t, c.lag)
}

// TestEveryNumberOnce: whatever the parallelism, and however often it changes in the middle, every number comes once.
func TestEveryNumberOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Uint64Range(1, 500).Draw(t, "count")
		s := generator.New(number).Count(count).Splits(rapid.IntRange(1, 9).Draw(t, "splits"))
		out := &output{}
		var positions []sources.Position
		for ended := false; !ended; {
			parallelism := rapid.IntRange(1, 10).Draw(t, "parallelism")
			var next []sources.Position
			ended = true
			for subtask := range parallelism {
				r, _ := open(t, s, subtask, parallelism, positions)
				if !read(t, r, out, rapid.IntRange(1, 200).Draw(t, "records")) {
					ended = false
				}
				ps, err := r.Positions()
				require.NoError(t, err)
				next = append(next, ps...)
				require.NoError(t, r.Close())
			}
			positions = next
		}
		slices.Sort(out.values)
		require.Len(t, out.values, int(count))
		for i, v := range out.values {
			require.EqualValues(t, i, v)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := generator.New(number).Rate(100).Splits(4)
		began := time.Now()
		total := 0
		for subtask := range 2 {
			r, _ := open(t, s, subtask, 2, nil)
			out := &output{}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second-time.Millisecond)
			for {
				fetched, err := r.Fetch(ctx)
				if err != nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					break
				}
				_, err = r.Emit(fetched, out, 1000)
				require.NoError(t, err)
			}
			cancel()
			total += len(out.values)
			require.Positive(t, out.caughtUp)
		}
		require.Equal(t, 20*time.Second-2*time.Millisecond, time.Since(began))
		require.InDelta(t, 1000, total, 5)
	})
}

func TestTimestamps(t *testing.T) {
	out := &output{}
	r, _ := open(t, generator.New(number).Count(3).Timestamps(time.UnixMilli(1000), 10*time.Millisecond), 0, 1, nil)
	read(t, r, out, 10)
	require.Equal(t, []int64{1000, 1010, 1020}, out.timestamps)
	untimed := &output{}
	r, _ = open(t, generator.New(number).Count(1).Timestamps(time.Time{}, 0), 0, 1, nil)
	read(t, r, untimed, 10)
	require.Equal(t, []int64{operator.NoTimestamp}, untimed.timestamps)
}

func TestASubtaskWithoutSplits(t *testing.T) {
	r, _ := open(t, generator.New(number).Count(3).Splits(1), 1, 2, nil)
	_, err := r.Fetch(context.Background())
	require.ErrorIs(t, err, io.EOF)
	r, _ = open(t, generator.New(number).Splits(1), 1, 2, nil)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = r.Fetch(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestBadSettingsAndPositions(t *testing.T) {
	require.ErrorIs(t, generator.New[int](nil).Splits(0).Rate(-1).Validate(sources.JobSettings{}), generator.ErrSettings)
	s := generator.New(number).Count(10)
	r, _ := open(t, s, 0, 1, nil)
	positions, err := r.Positions()
	require.NoError(t, err)
	for name, c := range map[string]struct {
		source   generator.Source[uint64]
		restored []sources.Position
	}{
		"other number of splits": {s.Splits(3), positions},
		"cut off":                {s, []sources.Position{{Key: "0", Value: []byte{8}}}},
		"nothing":                {s, []sources.Position{{Key: "0"}}},
		"too long":               {s, []sources.Position{{Key: "0", Value: []byte{8, 1, 1}}}},
	} {
		r, err := c.source.NewReader(sources.ReaderContext{Parallelism: 1, Now: time.Now})
		require.NoError(t, err, name)
		require.ErrorIs(t, r.Open(context.Background(), c.restored, false), generator.ErrSettings, name)
	}
}

func FuzzPosition(f *testing.F) {
	s := generator.New(number).Count(100)
	f.Add("0", []byte{8, 5})
	f.Add("x", []byte{8, 0x80})
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r, err := s.NewReader(sources.ReaderContext{Parallelism: 1, Counters: &counters{}, Now: time.Now})
		require.NoError(t, err)
		if r.Open(context.Background(), []sources.Position{{Key: key, Value: value}}, false) != nil {
			return
		}
		out := &output{}
		require.True(t, read(t, r, out, 1000))
		require.LessOrEqual(t, len(out.values), 100)
	})
}

func BenchmarkEmit(b *testing.B) {
	r, _ := open(b, generator.New(number).Timestamps(time.Now(), time.Millisecond), 0, 1, nil)
	out := discard{}
	b.ReportAllocs()
	for n := 0; n < b.N; n += 4096 {
		fetched, err := r.Fetch(context.Background())
		require.NoError(b, err)
		_, err = r.Emit(fetched, out, 4096)
		require.NoError(b, err)
	}
}

type discard struct{}

func (discard) Split(string) int                 { return 0 }
func (discard) Remove(int)                       {}
func (discard) Collect(int, uint64, int64) error { return nil }
func (discard) CaughtUp(int, time.Time)          {}
