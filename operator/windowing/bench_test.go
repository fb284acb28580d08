package windowing_test

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/windowing"
	"github.com/weir-stream/weir/statebackend/statetest"
)

type hit struct {
	key string
	n   int64
}

type sum struct{}

func (sum) Add(acc *int64, h hit)                              { *acc += h.n }
func (sum) Merge(into *int64, from int64)                      { *into += from }
func (sum) Result(_ string, _ windowing.Span, acc int64) int64 { return acc }

type nothing struct{}

func (nothing) Collect(int64, int64) error { return nil }

type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func openWindow(t testing.TB, a windowing.Assigner) (operator.Instance, operator.Collector[hit]) {
	kc, err := codec.ForKey[string]()
	require.NoError(t, err)
	ac, err := codec.For[int64]()
	require.NoError(t, err)
	i, err := windowing.New(windowing.Config[string, hit, int64, int64]{
		Windows: a, Key: func(h hit) string { return h.key }, KeyCodec: kc, AccCodec: ac, Function: windowing.Aggregate(sum{}),
	}).New([]any{nothing{}})
	require.NoError(t, err)
	require.NoError(t, i.Open(context.Background(), &operator.Runtime{
		Vertex: "v", Parallelism: 1, MaxParallelism: 128, KeyGroups: keygroup.RangeOf(0, 1, 128), Clock: wallClock{},
		Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Dir: t.TempDir(), Segments: statetest.NewStore(t.TempDir()),
		Post: func(func() error) {},
	}))
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return i, i.Input().(operator.Collector[hit])
}

func hits(n int) []hit {
	hs := make([]hit, n)
	for i := range hs {
		hs[i] = hit{"user-" + strconv.Itoa(i), 1}
	}
	return hs
}

func TestAggregatingDoesNotAllocatePerRecord(t *testing.T) {
	_, in := openWindow(t, fixed(60_000, 10_000, 0))
	hs := hits(1000)
	for i, h := range hs {
		require.NoError(t, in.Collect(h, int64(i)))
	}
	i := 0
	require.Zero(t, testing.AllocsPerRun(10_000, func() {
		_ = in.Collect(hs[i%len(hs)], int64(i%10_000))
		i++
	}))
}

func BenchmarkAggregate(b *testing.B) {
	for _, keys := range []int{100, 100_000} {
		b.Run(strconv.Itoa(keys)+" keys", func(b *testing.B) {
			i, in := openWindow(b, fixed(60_000, 60_000, 0))
			hs := hits(keys)
			b.ReportAllocs()
			b.ResetTimer()
			for n := range b.N {
				at := int64(n) / 100 // 100 records a millisecond
				_ = in.Collect(hs[n%keys], at)
				if n%100_000 == 0 {
					_, _ = i.Watermark(at - 1000)
				}
			}
		})
	}
}
