package watermark_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/operator/watermark"
)

var epoch = time.Unix(0, 0)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestAfter(t *testing.T) {
	require.Equal(t, int64(89), watermark.BoundedOutOfOrder(10*time.Millisecond).After(100))
	require.Equal(t, int64(99), watermark.Monotonous().After(100))
	require.Equal(t, watermark.None, watermark.Monotonous().After(watermark.None))
	require.Equal(t, watermark.None, watermark.BoundedOutOfOrder(time.Hour).After(watermark.None+5))
	require.Equal(t, watermark.None, watermark.Strategy{}.After(100))
	require.Equal(t, int64(math.MaxInt64-1), watermark.Monotonous().After(math.MaxInt64))
}

func tracker(s watermark.Strategy) *watermark.Tracker {
	return watermark.NewTracker(s, watermark.None, nil)
}

func TestTheSlowestSplitDecides(t *testing.T) {
	tr := tracker(watermark.Monotonous())
	a, b := tr.Split("a"), tr.Split("b")
	require.Equal(t, a, tr.Split("a"))
	tr.Record(a, 100)
	wm, idle := tr.Current()
	require.Equal(t, watermark.None, wm, "a split without a record holds back")
	require.False(t, idle)
	tr.Record(b, 50)
	wm, _ = tr.Current()
	require.Equal(t, int64(49), wm)
	tr.Record(b, 200)
	wm, _ = tr.Current()
	require.Equal(t, int64(99), wm)
}

// TestIdleness: caught-up silent splits are left out after the idle time, slow ones never.
func TestIdleness(t *testing.T) {
	tr := tracker(watermark.Monotonous().WithIdleTimeout(10 * time.Second))
	busy, silent := tr.Split("busy"), tr.Split("silent")
	tr.Record(busy, 1000)
	tr.CaughtUp(silent, at(100))
	tr.CaughtUp(silent, at(109))
	wm, _ := tr.Current()
	require.Equal(t, watermark.None, wm)
	tr.CaughtUp(silent, at(110))
	wm, idle := tr.Current()
	require.Equal(t, int64(999), wm)
	require.False(t, idle)

	// It joins again with its next record, and the watermark does not go back for it.
	tr.Record(silent, 500)
	tr.Record(busy, 2000)
	wm, _ = tr.Current()
	require.Equal(t, int64(999), wm)
	tr.Record(silent, 1500)
	wm, _ = tr.Current()
	require.Equal(t, int64(1499), wm)

	// A look long ago proves nothing now: without further looks the split holds back, however long that takes.
	tr.CaughtUp(silent, at(200))
	tr.Record(busy, 9000)
	wm, _ = tr.Current()
	require.Equal(t, int64(1499), wm)

	// A record starts the count anew.
	tr.Record(silent, 1600)
	tr.CaughtUp(silent, at(210))
	wm, _ = tr.Current()
	require.Equal(t, int64(1599), wm)
	tr.CaughtUp(silent, at(220))
	wm, _ = tr.Current()
	require.Equal(t, int64(8999), wm)
}

func TestWithoutIdlenessSilenceHoldsBack(t *testing.T) {
	tr := tracker(watermark.Monotonous().WithoutIdleness())
	busy, silent := tr.Split("busy"), tr.Split("silent")
	tr.Record(busy, 1000)
	tr.CaughtUp(silent, at(0))
	tr.CaughtUp(silent, at(1_000_000))
	wm, idle := tr.Current()
	require.Equal(t, watermark.None, wm)
	require.False(t, idle)
}

func TestAllSilent(t *testing.T) {
	tr := tracker(watermark.Monotonous().WithIdleTimeout(10 * time.Second))
	a, b := tr.Split("a"), tr.Split("b")
	tr.Record(a, 100)
	tr.Record(b, 300)
	for _, s := range []int{a, b} {
		tr.CaughtUp(s, at(0))
		tr.CaughtUp(s, at(10))
	}
	wm, idle := tr.Current()
	require.True(t, idle)
	require.Equal(t, int64(299), wm, "no further than the records that were there")
}

func TestWithoutSplitsThereIsNothingToContribute(t *testing.T) {
	tr := tracker(watermark.Monotonous())
	wm, idle := tr.Current()
	require.True(t, idle)
	require.Equal(t, watermark.None, wm)
	s := tr.Split("late")
	_, idle = tr.Current()
	require.False(t, idle)
	tr.Remove(s)
	_, idle = tr.Current()
	require.True(t, idle)
}

func TestRestoredSplitsGoOnFromTheirMaximum(t *testing.T) {
	tr := watermark.NewTracker(watermark.Monotonous(), 80, map[string]int64{"a": 100, "elsewhere": 7})
	a := tr.Split("a")
	wm, _ := tr.Current()
	require.Equal(t, int64(99), wm)
	tr.Record(a, 60)
	wm, _ = tr.Current()
	require.Equal(t, int64(99), wm)
	got := map[string]int64{}
	tr.Largest(func(key string, largest int64) { got[key] = largest })
	require.Equal(t, map[string]int64{"a": 100}, got, "the maxima of splits that others own are theirs to keep")
}

func TestRemovedNumbersAreUsedAgain(t *testing.T) {
	tr := tracker(watermark.Monotonous())
	a := tr.Split("a")
	tr.Record(a, 100)
	tr.Remove(a)
	tr.Remove(a)
	b, c := tr.Split("b"), tr.Split("c")
	require.NotEqual(t, b, c)
	wm, _ := tr.Current()
	require.Equal(t, watermark.None, wm, "nothing of the removed split is left")
}

// TestTrackerAgainstModel compares random sequences with the definition: the lowest of the splits that are not idle, never back.
func TestTrackerAgainstModel(t *testing.T) {
	const timeout = 10
	rapid.Check(t, func(t *rapid.T) {
		tr := tracker(watermark.Monotonous().WithIdleTimeout(timeout * time.Second))
		type model struct {
			largest int64
			looks   []int
		}
		splits := make(map[string]*model)
		now, best := 0, watermark.None
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "split")
			now += rapid.IntRange(0, 6).Draw(t, "elapsed")
			n := tr.Split(key)
			if splits[key] == nil {
				splits[key] = &model{largest: watermark.None}
			}
			m := splits[key]
			switch rapid.IntRange(0, 3).Draw(t, "action") {
			case 0:
				v := rapid.Int64Range(-50, 50).Draw(t, "timestamp")
				tr.Record(n, v)
				m.largest, m.looks = max(m.largest, v), nil
			case 1, 2:
				tr.CaughtUp(n, at(now))
				m.looks = append(m.looks, now)
			case 3:
				tr.Remove(n)
				delete(splits, key)
			}
			lowest, highest, active := int64(math.MaxInt64), watermark.None, 0
			for _, m := range splits {
				own := watermark.None
				if m.largest != watermark.None {
					own = m.largest - 1
				}
				highest = max(highest, own)
				if len(m.looks) > 0 && m.looks[len(m.looks)-1]-m.looks[0] >= timeout {
					continue
				}
				active++
				lowest = min(lowest, own)
			}
			if active == 0 {
				lowest = highest
			}
			best = max(best, lowest)
			wm, idle := tr.Current()
			require.Equal(t, best, wm)
			require.Equal(t, active == 0, idle)
		}
	})
}

func TestSplitsTellWhoHoldsBack(t *testing.T) {
	tr := tracker(watermark.Monotonous().WithIdleTimeout(10 * time.Second))
	a, b := tr.Split("a"), tr.Split("b")
	tr.Record(a, 100)
	tr.CaughtUp(b, at(1))
	tr.CaughtUp(b, at(6))
	got := map[string]watermark.Split{}
	tr.Splits(func(s watermark.Split) { got[s.Key] = s })
	require.Equal(t, map[string]watermark.Split{
		"a": {Key: "a", Watermark: 99, Quiet: -1},
		"b": {Key: "b", Watermark: watermark.None, Quiet: 5 * time.Second},
	}, got)
	tr.CaughtUp(b, at(11))
	tr.Splits(func(s watermark.Split) { got[s.Key] = s })
	require.True(t, got["b"].Idle)
}
