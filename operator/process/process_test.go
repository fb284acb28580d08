package process_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator/process"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
)

// change is a record of a compacted topic: without a value it is a tombstone.
type change struct {
	Key   string
	Value *string
}

func key(c change) string { return c.Key }

func set(k, v string) change { return change{k, &v} }

type pipe = streamtest.Pipe[change, string]

func newPipe(t testing.TB, setup func(*stream.States[string]) stream.Handler[string, change, string], opts ...streamtest.Option) *pipe {
	p, err := streamtest.NewPipe(func(in *stream.Stream[change]) *stream.Stream[string] {
		return stream.Process(stream.KeyBy(in, key), setup).Named("process")
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
	return out
}

func restore(t *testing.T, p *pipe, parallelism int) {
	cp, err := p.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, p.Restore(cp, streamtest.Parallelism(parallelism)))
}

// upsert emits what it held for a key before, and keeps what comes; a tombstone deletes.
func upsert(s *stream.States[string]) stream.Handler[string, change, string] {
	current := stream.ValueOf[string](s, "current")
	return stream.Handler[string, change, string]{Record: func(c *stream.Context[string, string], ch change) error {
		before, ok, err := current.Get()
		if err != nil {
			return err
		}
		if !ok {
			before = "nothing"
		}
		if err := c.Emit(fmt.Sprintf("%s was %s", c.Key(), before)); err != nil {
			return err
		}
		if ch.Value == nil {
			return current.Delete()
		}
		return current.Put(*ch.Value)
	}}
}

// TestTombstonesDeleteState: a tombstoned key is gone, and stays gone after a restore; an
// empty value is not a tombstone.
func TestTombstonesDeleteState(t *testing.T) {
	p := newPipe(t, upsert)
	require.NoError(t, p.Push(set("a", "1"), set("b", ""), change{Key: "a"}, set("c", "3")))
	require.Equal(t, []string{"a was nothing", "b was nothing", "a was 1", "c was nothing"}, take(p))
	for _, parallelism := range []int{1, 3, 2} {
		restore(t, p, parallelism)
		require.NoError(t, p.Push(change{Key: "a"}, set("b", "")))
		require.ElementsMatch(t, []string{"a was nothing", "b was "}, take(p))
	}
	// Deleted after the key was in a checkpoint.
	require.NoError(t, p.Push(change{Key: "c"}))
	require.Equal(t, []string{"c was 3"}, take(p))
	restore(t, p, 1)
	require.NoError(t, p.Push(change{Key: "c"}))
	require.Equal(t, []string{"c was nothing"}, take(p))
}

func timers(s *stream.States[string]) stream.Handler[string, change, string] {
	return stream.Handler[string, change, string]{
		Record: func(c *stream.Context[string, string], ch change) error {
			at, timed := c.Timestamp()
			if !timed {
				return c.SetProcessingTimer(c.Now().Add(10 * time.Second))
			}
			if ch.Value == nil {
				return c.DeleteEventTimer(at.Add(10 * time.Second))
			}
			return c.SetEventTimer(at.Add(10 * time.Second))
		},
		EventTimer: func(c *stream.Context[string, string], at time.Time) error {
			stamp, _ := c.Timestamp()
			if !stamp.Equal(at) {
				return errors.New("the timestamp of a timer is its time")
			}
			if err := c.Emit(fmt.Sprintf("event %s %d", c.Key(), at.Unix())); err != nil {
				return err
			}
			if at.Unix() == 11 { // due at once: it fires in the same advance
				return c.SetEventTimer(at.Add(time.Second))
			}
			return nil
		},
		ProcessingTimer: func(c *stream.Context[string, string], at time.Time) error {
			if _, timed := c.Timestamp(); timed {
				return errors.New("a timer in processing time has no timestamp")
			}
			return c.Emit(fmt.Sprintf("processing %s %d at %d", c.Key(), at.Unix(), c.Now().Unix()))
		},
	}
}

func sec(n int) time.Time { return time.Unix(int64(n), 0) }

func TestEventTimers(t *testing.T) {
	p := newPipe(t, timers)
	require.NoError(t, p.PushAt(sec(5), set("b", "")))
	require.NoError(t, p.PushAt(sec(1), set("a", "")))
	require.NoError(t, p.PushAt(sec(1), set("a", "")), "set twice is set once")
	require.NoError(t, p.PushAt(sec(30), set("c", "")))
	require.NoError(t, p.PushAt(sec(3), set("d", "")))
	require.NoError(t, p.PushAt(sec(3), change{Key: "d"}))
	require.NoError(t, p.Watermark(sec(10)))
	require.Empty(t, take(p))
	restore(t, p, 3)
	require.NoError(t, p.Watermark(sec(15)))
	require.ElementsMatch(t, []string{"event a 11", "event a 12", "event b 15"}, take(p))
	restore(t, p, 1)
	require.NoError(t, p.End())
	require.Equal(t, []string{"event c 40"}, take(p), "the end of input fires the rest, and nothing again")
}

func TestProcessingTimers(t *testing.T) {
	p := newPipe(t, timers, streamtest.At(sec(100)))
	require.NoError(t, p.Push(set("a", "")))
	require.NoError(t, p.AdvanceTime(9*time.Second))
	require.Empty(t, take(p))
	require.NoError(t, p.Push(set("b", "")))
	require.NoError(t, p.AdvanceTime(time.Hour))
	require.Equal(t, []string{"processing a 110 at 110", "processing b 119 at 119"}, take(p))
	require.NoError(t, p.Push(set("c", "")))
	restore(t, p, 2)
	require.NoError(t, p.AdvanceTime(time.Hour))
	require.Len(t, take(p), 1)
	require.NoError(t, p.Push(set("d", "")))
	require.NoError(t, p.End())
	require.Empty(t, take(p), "the end of input does not make it later than it is")
}

func TestMapAndListState(t *testing.T) {
	p := newPipe(t, func(s *stream.States[string]) stream.Handler[string, change, string] {
		m := stream.MapOf[int64, string](s, "map")
		l := stream.ListOf[string](s, "list")
		return stream.Handler[string, change, string]{Record: func(c *stream.Context[string, string], ch change) error {
			if ch.Value == nil {
				if err := l.Clear(); err != nil {
					return err
				}
				return m.Clear()
			}
			if err := errors.Join(l.Append(*ch.Value), m.Put(int64(-len(*ch.Value)), *ch.Value), m.Delete(-3)); err != nil {
				return err
			}
			all, err := l.All()
			if err != nil {
				return err
			}
			text := fmt.Sprint(all)
			err = m.Range(func(k int64, v string) bool {
				text += fmt.Sprint(" ", k, "=", v)
				return true
			})
			if err != nil {
				return err
			}
			return c.Emit(text)
		}}
	})
	require.NoError(t, p.Push(set("k", "a"), set("k", "bb")))
	require.Equal(t, []string{"[a] -1=a", "[a bb] -2=bb -1=a"}, take(p))
	restore(t, p, 2)
	require.NoError(t, p.Push(set("k", "ccc")))
	require.Equal(t, []string{"[a bb ccc] -2=bb -1=a"}, take(p))
	require.NoError(t, p.Push(change{Key: "k"}))
	restore(t, p, 1)
	require.NoError(t, p.Push(set("k", "d")))
	require.Equal(t, []string{"[d] -1=d"}, take(p))
}

// Each state expires by its own clock, also after a restore with another parallelism.
func TestStatesExpire(t *testing.T) {
	byClock, byEvents := stream.ProcessingTimeTTL(time.Minute), stream.EventTimeTTL(time.Minute)
	p := newPipe(t, func(s *stream.States[string]) stream.Handler[string, change, string] {
		v := stream.ValueOf[string](s, "v").WithTTL(byClock)
		r := stream.ReducingOf(s, "r", func(a, b string) string { return a + b }).WithTTL(byEvents)
		m := stream.MapOf[string, string](s, "m").WithTTL(byEvents)
		l := stream.ListOf[string](s, "l").WithTTL(byEvents)
		return stream.Handler[string, change, string]{Record: func(c *stream.Context[string, string], ch change) error {
			if ch.Value != nil {
				return errors.Join(v.Put(*ch.Value), r.Add(*ch.Value), m.Put(*ch.Value, *ch.Value), l.Append(*ch.Value))
			}
			value, _, err1 := v.Get()
			sum, _, err2 := r.Get()
			all, err3 := l.All()
			text := ""
			err4 := m.Range(func(k, _ string) bool {
				text += k
				return true
			})
			return errors.Join(err1, err2, err3, err4, c.Emit(fmt.Sprintf("%s|%s|%s|%s", value, sum, text, all)))
		}}
	}, streamtest.At(sec(1000)))
	look := change{Key: "k"}
	require.NoError(t, p.PushAt(sec(100), set("k", "a")))
	require.NoError(t, p.AdvanceTime(50*time.Second))
	require.NoError(t, p.PushAt(sec(130), set("k", "b")))
	require.NoError(t, p.PushAt(sec(110), look))
	require.Equal(t, []string{"b|ab|ab|[a b]"}, take(p))
	restore(t, p, 3)
	require.NoError(t, p.AdvanceTime(59*time.Second))
	require.NoError(t, p.PushAt(sec(160), look))
	require.NoError(t, p.AdvanceTime(time.Second))
	require.NoError(t, p.PushAt(sec(159), look))
	require.Equal(t, []string{"b|ab|b|[b]", "|ab|ab|[a b]"}, take(p))
	require.NoError(t, p.Watermark(sec(165)))
	restore(t, p, 2)
	require.NoError(t, p.PushAt(sec(140), look))
	require.NoError(t, p.PushAt(sec(190), look))
	require.Equal(t, []string{"|ab|b|[b]", "|||[]"}, take(p))
}

// A timer finds what was there at its time, however far the watermark has leapt; the end of input is no time at which anything expires.
func TestATimerFindsWhatWasThereAtItsTime(t *testing.T) {
	p := newPipe(t, func(s *stream.States[string]) stream.Handler[string, change, string] {
		v := stream.ValueOf[string](s, "v").WithTTL(stream.EventTimeTTL(time.Minute))
		return stream.Handler[string, change, string]{
			Record: func(c *stream.Context[string, string], ch change) error {
				at, _ := c.Timestamp()
				return errors.Join(v.Put(*ch.Value), c.SetEventTimer(at.Add(59*time.Second)), c.SetEventTimer(at.Add(60*time.Second)))
			},
			EventTimer: func(c *stream.Context[string, string], at time.Time) error {
				value, _, err := v.Get()
				return errors.Join(err, c.Emit(fmt.Sprint(at.Unix(), value)))
			},
		}
	})
	require.NoError(t, p.PushAt(sec(100), set("k", "a")))
	require.NoError(t, p.Watermark(sec(1000)))
	require.Equal(t, []string{"159a", "160"}, take(p))
	require.NoError(t, p.PushAt(sec(1000), set("k", "b")))
	require.NoError(t, p.End())
	require.Equal(t, []string{"1059b", "1060"}, take(p))
}

func TestDeclarations(t *testing.T) {
	codecs, err := process.Declared(func(s *stream.States[string]) stream.Handler[string, change, string] {
		stream.ValueOf[int64](s, "v")
		stream.MapOf[string, int64](s, "m")
		stream.ListOf[string](s, "l")
		return stream.Handler[string, change, string]{Record: func(*stream.Context[string, string], change) error { return nil }}
	})
	require.NoError(t, err)
	require.Equal(t, []string{"value v [int64]", "map m [string int64]", "list l [string]"}, codecs)

	_, err = process.Declared(func(s *stream.States[string]) stream.Handler[string, change, string] {
		stream.ValueOf[int64](s, "v")
		stream.ListOf[int64](s, "v")
		stream.ValueOf[int64](s, "#event-timers")
		stream.ValueOf[chan int](s, "c")
		stream.ValueOf[int](s, "t").WithTTL(stream.EventTimeTTL(0))
		stream.ReducingOf[int](s, "r", nil)
		return stream.Handler[string, change, string]{}
	})
	require.ErrorIs(t, err, process.ErrDeclaration)
	for _, part := range []string{"used twice", "begins with #", `"c"`, "Record", `"t": its time to live is not positive`, "merges"} {
		require.ErrorContains(t, err, part)
	}
}

func TestTheWatermarkIsState(t *testing.T) {
	p := newPipe(t, func(*stream.States[string]) stream.Handler[string, change, string] {
		return stream.Handler[string, change, string]{Record: func(c *stream.Context[string, string], _ change) error {
			wm, ok := c.Watermark()
			return c.Emit(fmt.Sprint(wm.Unix(), ok))
		}}
	})
	require.NoError(t, p.Watermark(sec(7)))
	require.NoError(t, p.Push(set("a", "")))
	require.Equal(t, []string{"7 true"}, take(p))
	for _, parallelism := range []int{1, 2} {
		restore(t, p, parallelism)
		require.NoError(t, p.Watermark(sec(3)), "a source that starts again further back")
		require.NoError(t, p.Push(set("a", "")))
		require.Equal(t, []string{"7 true"}, take(p))
	}
}

func TestATimerWithoutAHandlerFails(t *testing.T) {
	p := newPipe(t, func(*stream.States[string]) stream.Handler[string, change, string] {
		return stream.Handler[string, change, string]{Record: func(c *stream.Context[string, string], _ change) error {
			return c.SetEventTimer(sec(1))
		}}
	})
	require.NoError(t, p.Push(set("a", "")))
	require.ErrorContains(t, p.Watermark(sec(2)), "EventTimer")
}
