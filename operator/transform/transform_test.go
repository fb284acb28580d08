package transform_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/transform"
	"github.com/weir-stream/weir/operator/watermark"
)

// gather takes records.
type gather[T any] struct {
	values     []T
	timestamps []int64
	err        error
}

func (g *gather[T]) Collect(v T, at int64) error {
	g.values, g.timestamps = append(g.values, v), append(g.timestamps, at)
	return g.err
}

func build[T any](t require.TestingT, f operator.Factory, out any) (operator.Instance, operator.Collector[T]) {
	i, err := f.New([]any{out})
	require.NoError(t, err)
	return i, i.Input().(operator.Collector[T])
}

func TestMap(t *testing.T) {
	out := &gather[int]{}
	_, in := build[string](t, transform.Map(strconv.Atoi), out)
	require.NoError(t, in.Collect("7", 70))
	require.ErrorIs(t, in.Collect("x", 0), strconv.ErrSyntax)
	require.Equal(t, []int{7}, out.values)
	require.Equal(t, []int64{70}, out.timestamps)
	out.err = errors.New("downstream")
	require.ErrorIs(t, in.Collect("8", 0), out.err)
}

func TestFilter(t *testing.T) {
	out, boom := &gather[int]{}, errors.New("boom")
	_, in := build[int](t, transform.Filter(func(n int) (bool, error) {
		if n < 0 {
			return true, boom
		}
		return n%2 == 0, nil
	}), out)
	for n := range 4 {
		require.NoError(t, in.Collect(n, int64(n)))
	}
	require.ErrorIs(t, in.Collect(-1, 0), boom)
	require.Equal(t, []int{0, 2}, out.values)
}

func TestFlatMap(t *testing.T) {
	out := &gather[int]{}
	_, in := build[int](t, transform.FlatMap(func(n int, emit func(int) error) error {
		for range n {
			if err := emit(n); err != nil {
				return err
			}
		}
		return nil
	}), out)
	require.NoError(t, in.Collect(0, 1))
	require.NoError(t, in.Collect(2, 5))
	require.Equal(t, []int{2, 2}, out.values)
	require.Equal(t, []int64{5, 5}, out.timestamps)
	out.err = errors.New("downstream")
	require.ErrorIs(t, in.Collect(1, 0), out.err)
}

func TestStatelessOperatorsHaveNoSnapshot(t *testing.T) {
	i, _ := build[int](t, transform.Union[int](), &gather[int]{})
	finish, err := i.Snapshot(context.Background(), operator.Barrier{Checkpoint: 1})
	require.NoError(t, err)
	require.Nil(t, finish)
	wm, err := i.Watermark(7)
	require.NoError(t, err)
	require.EqualValues(t, 7, wm)
}

func TestWrongOutputsAreRefused(t *testing.T) {
	_, err := transform.Map(strconv.Atoi).New([]any{&gather[string]{}})
	require.Error(t, err)
}

func TestAssignTimestamps(t *testing.T) {
	out := &gather[int64]{}
	f := transform.AssignTimestamps(func(v, _ int64) int64 { return v }, watermark.BoundedOutOfOrder(10*time.Millisecond))
	i, in := build[int64](t, f, out)
	source := i.(operator.WatermarkSource)
	wm, idle := source.CurrentWatermark(time.Now())
	require.Equal(t, operator.MinWatermark, wm)
	require.False(t, idle)
	require.NoError(t, in.Collect(100, operator.NoTimestamp))
	require.NoError(t, in.Collect(50, operator.NoTimestamp))
	wm, _ = source.CurrentWatermark(time.Now())
	require.EqualValues(t, 89, wm)
	require.Equal(t, []int64{100, 50}, out.timestamps)

	wm, err := i.Watermark(5000)
	require.NoError(t, err)
	require.EqualValues(t, 89, wm, "watermarks from upstream are of other timestamps")
	i.(operator.IdleListener).InputIdle(true)
	_, idle = source.CurrentWatermark(time.Now())
	require.True(t, idle)
	wm, err = i.Watermark(operator.MaxWatermark)
	require.NoError(t, err)
	require.Equal(t, operator.MaxWatermark, wm)
}

func TestTheWatermarkOfAnAssignerIsState(t *testing.T) {
	f := transform.AssignTimestamps(func(v, _ int64) int64 { return v }, watermark.Monotonous())
	i, in := build[int64](t, f, &gather[int64]{})
	rt := &operator.Runtime{Operator: graph.Operator{UID: "stamp"}}
	require.NoError(t, i.Open(t.Context(), rt))
	require.NoError(t, in.Collect(100, 0))
	i.(operator.WatermarkSource).CurrentWatermark(time.Now())
	finish, err := i.Snapshot(t.Context(), operator.Barrier{Checkpoint: 1})
	require.NoError(t, err)
	s, err := finish(t.Context())
	require.NoError(t, err)
	require.Equal(t, "stamp", s.GetUid())

	lower := int64(40)
	for _, c := range []struct {
		restored []*snapshotv1.OperatorSnapshot
		want     int64
	}{
		{[]*snapshotv1.OperatorSnapshot{s}, 99},
		{[]*snapshotv1.OperatorSnapshot{s, {Watermark: &lower}}, 40},
		{[]*snapshotv1.OperatorSnapshot{s, {}}, operator.MinWatermark},
	} {
		again, _ := build[int64](t, f, &gather[int64]{})
		rt.Restored = c.restored
		require.NoError(t, again.Open(t.Context(), rt))
		wm, _ := again.(operator.WatermarkSource).CurrentWatermark(time.Now())
		require.Equal(t, c.want, wm)
	}
}

// chain is map -> filter -> map.
func chain(t require.TestingT) (operator.Collector[int64], *last) {
	out := &last{}
	_, third := build[int64](t, transform.Map(func(n int64) (int64, error) { return n + 1, nil }), out)
	_, second := build[int64](t, transform.Filter(func(n int64) (bool, error) { return n >= 0, nil }), third)
	_, first := build[int64](t, transform.Map(func(n int64) (int64, error) { return n * 2, nil }), second)
	return first, out
}

type last struct{ n int64 }

func (l *last) Collect(n, _ int64) error {
	l.n = n
	return nil
}

func TestChainsDoNotAllocate(t *testing.T) {
	in, out := chain(t)
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = in.Collect(21, 0) }))
	require.EqualValues(t, 43, out.n)
}

// BenchmarkChain measures three hops.
func BenchmarkChain(b *testing.B) {
	in, _ := chain(b)
	b.ReportAllocs()
	for i := range int64(b.N) {
		_ = in.Collect(i, i)
	}
}
