package windowing_test

import (
	"testing"
	"time"
	_ "time/tzdata" // zones on machines without them

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/operator/windowing"
)

func fixed(size, slide, offset int64) windowing.Fixed {
	ms := time.Millisecond
	return windowing.NewFixed(time.Duration(size)*ms, time.Duration(slide)*ms, time.Duration(offset)*ms)
}

func TestWindowsBelowZero(t *testing.T) {
	w := fixed(60_000, 60_000, 0)
	for at, start := range map[int64]int64{-60_001: -120_000, -60_000: -60_000, -1: -60_000, 0: 0, 59_999: 0, 60_000: 60_000} {
		require.Equal(t, windowing.Span{Start: start, End: start + 60_000}, w.Pane(at), "time %d", at)
	}
}

func TestOffsets(t *testing.T) {
	w := fixed(100, 100, 0).WithOffset(30 * time.Millisecond)
	require.Equal(t, windowing.Span{Start: -70, End: 30}, w.Pane(29))
	require.Equal(t, windowing.Span{Start: 30, End: 130}, w.Pane(30))
	require.Equal(t, w.ID(), fixed(100, 100, 0).WithOffset(-70*time.Millisecond).ID(), "offsets are alike modulo the slide")
}

// TestWindowsOfAPane compares with the definition: the windows are the spans of one size that begin at offset plus multiples of the
// slide, and those that hold a time are those that hold its pane.
func TestWindowsOfAPane(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slide := rapid.Int64Range(1, 40).Draw(t, "slide")
		size := slide + rapid.Int64Range(0, 100).Draw(t, "more")
		offset := rapid.Int64Range(-200, 200).Draw(t, "offset")
		at := rapid.Int64Range(-1000, 1000).Draw(t, "at")
		a := fixed(size, slide, offset)
		require.NoError(t, a.Validate())

		var want []windowing.Span
		for start := at - size - slide; start <= at; start++ {
			if mod := (start - offset) % slide; mod == 0 && start+size > at {
				want = append(want, windowing.Span{Start: start, End: start + size})
			}
		}
		pane := a.Pane(at)
		require.True(t, pane.Contains(at))
		require.Equal(t, pane, a.Pane(pane.Start))
		require.Equal(t, pane.End, a.Pane(pane.End).Start, "panes are consecutive")
		var got []windowing.Span
		for w := a.First(pane.Start); w.Start <= pane.Start; w = a.Next(w) {
			got = append(got, w)
			require.True(t, w.Start <= pane.Start && pane.End <= w.End, "a window holds whole panes")
		}
		require.Equal(t, want, got)
		require.Equal(t, want[len(want)-1], a.Last(pane.Start))
	})
}

func TestImpossibleWindows(t *testing.T) {
	for name, a := range map[string]windowing.Assigner{
		"no size":           windowing.NewFixed(0, 0, 0),
		"negative":          windowing.NewFixed(-time.Second, -time.Second, 0),
		"below millisecond": windowing.NewFixed(time.Microsecond, time.Microsecond, 0),
		"fraction":          windowing.NewFixed(1500*time.Microsecond, 1500*time.Microsecond, 0),
		"fraction offset":   windowing.NewFixed(time.Second, time.Second, time.Nanosecond),
		"gaps":              windowing.NewFixed(time.Second, time.Minute, 0),
		"too many slices":   windowing.NewFixed(24*time.Hour, 999*time.Millisecond, 0),
		"no zone":           windowing.NewDaily(nil),
		"the machine's":     windowing.NewDaily(time.Local),
	} {
		require.ErrorIs(t, a.Validate(), windowing.ErrWindow, name)
	}
	require.NoError(t, windowing.NewDaily(time.UTC).Validate())
}

func day(t require.TestingT, zone string) windowing.Daily {
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	return windowing.NewDaily(loc)
}

func utc(t require.TestingT, text string) int64 {
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at.UnixMilli()
}

// TestDaysOfAZone has zones that skip midnight and zones that repeat it.
func TestDaysOfAZone(t *testing.T) {
	for _, c := range []struct{ name, zone, at, start, end string }{
		{"clocks set forward", "America/New_York", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"clocks set back", "America/New_York", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"half an hour", "Asia/Kolkata", "2026-01-02T00:00:00Z", "2026-01-01T18:30:00Z", "2026-01-02T18:30:00Z"},
		{"midnight skipped", "America/Sao_Paulo", "2018-11-04T12:00:00Z", "2018-11-04T03:00:00Z", "2018-11-05T02:00:00Z"},
		{"the day before", "America/Sao_Paulo", "2018-11-04T02:59:59Z", "2018-11-03T03:00:00Z", "2018-11-04T03:00:00Z"},
		{"midnight repeated", "America/Sao_Paulo", "2018-02-18T12:00:00Z", "2018-02-18T03:00:00Z", "2018-02-19T03:00:00Z"},
		{"before the epoch", "UTC", "1969-12-31T23:59:59Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"},
		{"a day that never was", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := day(t, c.zone)
			require.Equal(t, windowing.Span{Start: utc(t, c.start), End: utc(t, c.end)}.String(), d.Pane(utc(t, c.at)).String())
		})
	}
}

// TestDaysAreConsecutive walks through the days of zones with odd histories: no time is in no day, or in two.
func TestDaysAreConsecutive(t *testing.T) {
	zones := []string{"America/New_York", "America/Sao_Paulo", "America/St_Johns", "Asia/Kolkata", "Pacific/Apia", "Europe/Berlin", "Africa/Cairo", "Asia/Beirut", "America/Havana"}
	rapid.Check(t, func(t *rapid.T) {
		d := day(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		from := utc(t, "1960-01-01T00:00:00Z")
		at := from + rapid.Int64Range(0, 70*365*86_400_000).Draw(t, "at")
		pane := d.Pane(at)
		for range 400 {
			require.True(t, pane.Contains(at), "%s holds %d", pane, at)
			require.Equal(t, pane, d.Pane(pane.Start))
			require.Equal(t, pane, d.Pane(pane.End-1))
			require.Equal(t, pane, d.Pane(pane.Start+(pane.End-pane.Start)/2))
			next := d.Next(pane)
			require.Equal(t, pane.End, next.Start)
			pane, at = next, next.Start
		}
	})
}
