package barrier_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

func TestWatermarksLowestOfActive(t *testing.T) {
	w := barrier.NewWatermarks(2)
	require.False(t, w.Advance(0, 10), "the other channel has none")
	require.True(t, w.Advance(1, 5))
	wm, idle := w.Combined()
	require.Equal(t, int64(5), wm)
	require.False(t, idle)

	require.True(t, w.SetIdle(1, true))
	wm, _ = w.Combined()
	require.Equal(t, int64(10), wm)

	require.False(t, w.SetIdle(1, false), "coming back with an old watermark moves nothing back")
	wm, _ = w.Combined()
	require.Equal(t, int64(10), wm)
	require.False(t, w.Advance(0, 20), "and holds the others back again")
}

func TestWatermarksAllIdleReachTheHighest(t *testing.T) {
	for _, last := range []int{0, 1} {
		w := barrier.NewWatermarks(2)
		w.Advance(0, 10)
		w.Advance(1, 50)
		w.SetIdle(1-last, true)
		w.SetIdle(last, true)
		wm, idle := w.Combined()
		require.Equal(t, int64(50), wm, "whichever fell idle last")
		require.True(t, idle)
		w.SetIdle(0, false)
		require.False(t, w.Advance(0, 30), "never back")
	}
}

func TestWatermarksEndDoesNotPushPastIdle(t *testing.T) {
	w := barrier.NewWatermarks(2)
	w.Advance(0, 10)
	w.Advance(1, 10)
	w.SetIdle(1, true)
	w.Advance(0, operator.MaxWatermark)
	wm, idle := w.Combined()
	require.Equal(t, int64(10), wm, "the idle channel may still bring records")
	require.True(t, idle)
	w.Advance(1, operator.MaxWatermark)
	wm, idle = w.Combined()
	require.Equal(t, operator.MaxWatermark, wm)
	require.False(t, idle)
}

func TestWatermarksRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		channels := rapid.IntRange(1, 4).Draw(rt, "channels")
		w := barrier.NewWatermarks(channels)
		marks := make([]int64, channels)
		idle := make([]bool, channels)
		for i := range marks {
			marks[i] = operator.MinWatermark
		}
		last := operator.MinWatermark
		rt.Repeat(map[string]func(*rapid.T){
			"advance": func(rt *rapid.T) {
				ch := rapid.IntRange(0, channels-1).Draw(rt, "ch")
				wm := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Just(operator.MaxWatermark)).Draw(rt, "wm")
				marks[ch] = max(marks[ch], wm)
				w.Advance(ch, wm)
			},
			"idle": func(rt *rapid.T) {
				ch := rapid.IntRange(0, channels-1).Draw(rt, "ch")
				idle[ch] = rapid.Bool().Draw(rt, "idle")
				w.SetIdle(ch, idle[ch])
			},
			"": func(rt *rapid.T) {
				wm, allIdle := w.Combined()
				require.GreaterOrEqual(rt, wm, last, "never back")
				if wm > last {
					for ch := range marks {
						require.True(rt, idle[ch] || marks[ch] >= wm, "channel %d is overtaken", ch)
						require.True(rt, wm != operator.MaxWatermark || marks[ch] == wm, "ended before channel %d", ch)
					}
				}
				last = wm
				open, active := 0, 0
				for ch := range marks {
					if marks[ch] != operator.MaxWatermark {
						open++
						if !idle[ch] {
							active++
						}
					}
				}
				require.Equal(rt, open > 0 && active == 0, allIdle)
			},
		})
	})
}
