package windowing_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

type click struct {
	Page string
	N    int
}

// list keeps the numbers of a page's clicks.
type list struct{}

func (list) Add(acc *[]int, c click)       { *acc = append(*acc, c.N) }
func (list) Merge(into *[]int, from []int) { *into = append(*into, from...) }
func (list) Result(p string, w window.Span, acc []int) string {
	acc = slices.Clone(acc)
	slices.Sort(acc)
	return fmt.Sprint(w.Start/1000, " ", p, acc)
}

func page(c click) string { return c.Page }

func sec(n int) time.Time { return time.Unix(int64(n), 0) }

type pipe = streamtest.Pipe[click, string]

func newPipe(t testing.TB, change func(*stream.Windowed[string, click]), w window.Windows, opts ...streamtest.Option) *pipe {
	p, err := streamtest.NewPipe(func(in *stream.Stream[click]) *stream.Stream[string] {
		windowed := stream.Window(stream.KeyBy(in, page), w)
		if change != nil {
			change(windowed)
		}
		return stream.Aggregate(windowed, list{}).Named("window")
	}, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

func take(p *pipe) []string {
	var out []string
	for _, r := range p.Take() {
		out = append(out, r.Value)
	}
	slices.Sort(out)
	return out
}

func TestWindowsFireWithTheirLastMillisecond(t *testing.T) {
	p := newPipe(t, nil, window.Tumbling(10*time.Second))
	require.NoError(t, p.PushAt(sec(1), click{"a", 1}))
	require.NoError(t, p.PushAt(sec(12), click{"a", 2}))
	require.NoError(t, p.PushAt(sec(9), click{"a", 3}))
	require.NoError(t, p.PushAt(sec(-1), click{"b", 4}))
	require.NoError(t, p.Watermark(sec(10).Add(-2*time.Millisecond)))
	require.Equal(t, []string{"-10 b[4]"}, take(p))
	require.NoError(t, p.Watermark(sec(10).Add(-time.Millisecond)))
	records := p.Take()
	require.Len(t, records, 1)
	require.Equal(t, "0 a[1 3]", records[0].Value)
	require.Equal(t, int64(9999), records[0].At.UnixMilli())
	require.NoError(t, p.End())
	require.Equal(t, []string{"10 a[2]"}, take(p))
}

func TestLateRecordsAreCounted(t *testing.T) {
	p := newPipe(t, nil, window.Tumbling(10*time.Second))
	require.NoError(t, p.Watermark(sec(10)))
	require.NoError(t, p.PushAt(sec(9), click{"a", 1}))
	require.NoError(t, p.PushAt(sec(10), click{"a", 2}))
	require.NoError(t, p.End())
	require.Equal(t, []string{"10 a[2]"}, take(p))
	require.EqualValues(t, 1, p.Stats("window").Late.Load())
}

func TestLatenessFiresAgain(t *testing.T) {
	p := newPipe(t, func(w *stream.Windowed[string, click]) { w.WithLateness(5 * time.Second) }, window.Sliding(20*time.Second, 10*time.Second))
	require.NoError(t, p.PushAt(sec(5), click{"a", 1}))
	require.NoError(t, p.PushAt(sec(15), click{"a", 2}))
	require.NoError(t, p.PushAt(sec(15), click{"b", 3}))
	require.NoError(t, p.Watermark(sec(20)))
	require.Equal(t, []string{"-10 a[1]", "0 a[1 2]", "0 b[3]"}, take(p))
	require.NoError(t, p.PushAt(sec(6), click{"a", 4}))
	require.Equal(t, []string{"0 a[1 2 4]"}, take(p), "only the window that is still kept, and only for the key")
	require.NoError(t, p.Watermark(sec(25)))
	require.NoError(t, p.PushAt(sec(16), click{"a", 5}))
	require.Empty(t, take(p), "the first window is over; the second has not fired")
	require.NoError(t, p.PushAt(sec(6), click{"a", 6}))
	require.EqualValues(t, 1, p.Stats("window").Late.Load())
	require.NoError(t, p.End())
	require.Equal(t, []string{"10 a[2 5]", "10 b[3]"}, take(p))
}

// formerly gives the state of windows the name that older versions gave it.
type formerly struct{ window.Windows }

func (f formerly) ID() string { return "panes " + f.Windows.ID() }

func TestStateOfOlderVersionsIsRead(t *testing.T) {
	tens := window.Tumbling(10 * time.Second)
	require.Equal(t, "panes window/10000/10000/0", formerly{tens}.ID())
	windows := window.Windows(formerly{tens})
	p, err := streamtest.NewPipe(func(in *stream.Stream[click]) *stream.Stream[string] {
		return stream.Aggregate(stream.Window(stream.KeyBy(in, page), windows), list{}).Named("window")
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	for n := range 3 {
		require.NoError(t, p.PushAt(sec(1), click{"a", n}))
		cp, err := p.Checkpoint()
		require.NoError(t, err)
		windows = tens // from the second time on it is written under the new name
		require.NoError(t, p.Restore(cp))
	}
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, p.End())
	require.Equal(t, []string{"0 a[0 1 2]"}, take(p))

	windows = window.Tumbling(20 * time.Second)
	require.ErrorContains(t, p.Restore(cp), `does not declare the state "window/10000/10000/0"`)
	windows = tens
	require.NoError(t, p.Restore(cp))
}

// TestRecordsWithoutTimestamps: they are skipped and counted and the position moves on, or fail the task where
// the job says so.
func TestRecordsWithoutTimestamps(t *testing.T) {
	p := newPipe(t, nil, window.Tumbling(10*time.Second))
	require.NoError(t, p.PushAt(sec(1), click{"a", 1}))
	for range 100 {
		require.NoError(t, p.Push(click{"a", 2}))
	}
	require.EqualValues(t, 100, p.Stats("window").Skipped.Load())
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, p.Restore(cp))
	require.NoError(t, p.End())
	require.Equal(t, []string{"0 a[1]"}, take(p))
	require.Zero(t, p.Stats("window").Skipped.Load(), "none is met again")

	strict := newPipe(t, func(w *stream.Windowed[string, click]) { w.FailOnMissingTimestamps() }, window.Tumbling(10*time.Second))
	require.ErrorContains(t, strict.Push(click{"a", 1}), "without a timestamp")
}

func TestNothingFiresTwiceAfterARestore(t *testing.T) {
	p := newPipe(t, nil, window.Tumbling(10*time.Second), streamtest.Parallelism(2))
	require.NoError(t, p.PushAt(sec(1), click{"a", 1}))
	require.NoError(t, p.PushAt(sec(11), click{"a", 2}))
	require.NoError(t, p.Watermark(sec(10)))
	require.Equal(t, []string{"0 a[1]"}, take(p))
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	for _, parallelism := range []int{2, 1, 5} {
		require.NoError(t, p.Restore(cp, streamtest.Parallelism(parallelism)))
		require.NoError(t, p.PushAt(sec(2), click{"a", 3}))
		require.NoError(t, p.Watermark(sec(20)))
		require.Equal(t, "10 a[2]", take(p)[0])
		require.Empty(t, take(p))
		require.Positive(t, p.Stats("window").Late.Load())
	}
}

func TestProcessingTimeWindows(t *testing.T) {
	p := newPipe(t, func(w *stream.Windowed[string, click]) { w.InProcessingTime() }, window.Tumbling(10*time.Second), streamtest.At(sec(3)))
	require.NoError(t, p.Push(click{"a", 1}))
	require.NoError(t, p.AdvanceTime(6999*time.Millisecond))
	require.NoError(t, p.Push(click{"a", 2}))
	require.Empty(t, take(p))
	require.NoError(t, p.AdvanceTime(time.Millisecond))
	require.Equal(t, []string{"0 a[1 2]"}, take(p))
	require.NoError(t, p.Push(click{"a", 3}))
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, p.Restore(cp))
	require.NoError(t, p.AdvanceTime(time.Minute))
	require.Equal(t, []string{"10 a[3]"}, take(p))
	require.NoError(t, p.Push(click{"a", 4}))
	require.NoError(t, p.End())
	require.Equal(t, []string{"70 a[4]"}, take(p), "the end of input does not wait for the clock")
}

// The rule for a clock that is set: ahead, the windows in between are over; back, time stands still until the clock is where it was.
func TestProcessingTimeWindowsWhenTheClockIsSet(t *testing.T) {
	p := newPipe(t, func(w *stream.Windowed[string, click]) { w.InProcessingTime() }, window.Tumbling(10*time.Second), streamtest.At(sec(3)))
	require.NoError(t, p.Push(click{"a", 1}))
	require.NoError(t, p.AdvanceTime(2*time.Hour))
	require.Equal(t, []string{"0 a[1]"}, take(p))
	require.NoError(t, p.Push(click{"a", 2}))
	require.NoError(t, p.AdvanceTime(10*time.Second))
	require.Equal(t, []string{"7200 a[2]"}, take(p))

	require.NoError(t, p.AdvanceTime(-2*time.Hour))
	require.NoError(t, p.Push(click{"a", 3}))
	require.NoError(t, p.AdvanceTime(2*time.Hour-4*time.Second))
	require.NoError(t, p.Push(click{"a", 4}))
	require.Empty(t, take(p), "no window fires again, and none before its time")
	require.NoError(t, p.AdvanceTime(11*time.Second))
	require.Equal(t, []string{"7210 a[3 4]"}, take(p))
}

func TestNothingFiresTwiceInProcessingTime(t *testing.T) {
	inProcessingTime := func(w *stream.Windowed[string, click]) { w.InProcessingTime() }
	p := newPipe(t, inProcessingTime, window.Sliding(10*time.Second, 5*time.Second), streamtest.At(sec(3)), streamtest.Parallelism(2))
	require.NoError(t, p.Push(click{"a", 1}))
	require.NoError(t, p.AdvanceTime(4*time.Second))
	require.NoError(t, p.Push(click{"a", 2}))
	require.NoError(t, p.AdvanceTime(3*time.Second))
	require.Equal(t, []string{"-5 a[1]", "0 a[1 2]"}, take(p))
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	for _, parallelism := range []int{2, 1, 5} {
		require.NoError(t, p.Restore(cp, streamtest.Parallelism(parallelism)))
		require.NoError(t, p.AdvanceTime(5*time.Second))
		require.Equal(t, []string{"5 a[2]"}, take(p), "the pane is in a window that has fired, too")
	}
}

func TestDailyWindowsInAJob(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	p := newPipe(t, nil, window.Daily(newYork))
	forward := time.Date(2026, 3, 8, 0, 0, 0, 0, newYork)
	require.NoError(t, p.PushAt(forward, click{"a", 1}))
	require.NoError(t, p.PushAt(forward.Add(23*time.Hour-time.Millisecond), click{"a", 2}))
	require.NoError(t, p.PushAt(forward.Add(23*time.Hour), click{"a", 3}))
	require.NoError(t, p.Watermark(forward.Add(23*time.Hour)))
	require.Equal(t, []string{fmt.Sprint(forward.Unix(), " a[1 2]")}, take(p))
}

// TestWindowsAgainstModel runs random records, watermarks, checkpoints and restores with changes of parallelism, and compares what
// comes out with the definition.
func TestWindowsAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slide := rapid.SampledFrom([]int{4, 6, 10}).Draw(rt, "slide")
		size := slide * rapid.IntRange(1, 3).Draw(rt, "slides") // and sizes that are no multiple
		if rapid.Bool().Draw(rt, "odd") {
			size += slide / 2
		}
		w := window.Sliding(time.Duration(size)*time.Second, time.Duration(slide)*time.Second)
		build := func(in *stream.Stream[click]) *stream.Stream[string] {
			return stream.Aggregate(stream.Window(stream.KeyBy(in, page), w), list{}).Named("window")
		}
		p, err := streamtest.NewPipe(build, streamtest.Parallelism(2))
		require.NoError(rt, err)
		defer func() { require.NoError(rt, p.Close()) }()
		content := make(map[string][]int) // by window and key
		wm := -1000
		var got []string
		for n := range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 7).Draw(rt, "action") {
			case 0:
				wm = max(wm, rapid.IntRange(-20, 60).Draw(rt, "watermark"))
				require.NoError(rt, p.Watermark(sec(wm).Add(-time.Millisecond)))
			case 1:
				cp, err := p.Checkpoint()
				require.NoError(rt, err)
				got = append(got, take(p)...)
				require.NoError(rt, p.Restore(cp, streamtest.Parallelism(rapid.IntRange(1, 3).Draw(rt, "parallelism"))))
			default:
				at := rapid.IntRange(-20, 60).Draw(rt, "at")
				key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "key")
				require.NoError(rt, p.PushAt(sec(at), click{key, n}))
				for start := at - size + 1; start <= at; start++ {
					if start%slide == 0 && start+size > wm {
						id := fmt.Sprint(start, " ", key)
						content[id] = append(content[id], n)
					}
				}
			}
		}
		require.NoError(rt, p.End())
		got = append(got, take(p)...)
		var want []string
		for _, id := range slices.Sorted(maps.Keys(content)) {
			want = append(want, fmt.Sprint(id, content[id]))
		}
		slices.Sort(got)
		slices.Sort(want)
		require.Equal(rt, want, got)
	})
}
