package exchange

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// TestWindow checks the bound against random consumption, and that the limit follows the consumer's rate.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWindow(100, 10_000)
		now := time.Unix(0, 0)
		var onTheWay []int
		total := 0
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(rt *rapid.T) {
				size := rapid.IntRange(1, 500).Draw(rt, "size")
				if !w.fits(size) {
					return
				}
				require.True(rt, total == 0 || total+size <= 10_000)
				w.send(size, now)
				onTheWay, total = append(onTheWay, size), total+size
			},
			"consume": func(rt *rapid.T) {
				if len(onTheWay) == 0 {
					return
				}
				w.done(onTheWay[0], now)
				total -= onTheWay[0]
				onTheWay = onTheWay[1:]
			},
			"wait": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(rt, "ms")) * time.Millisecond)
			},
			"": func(rt *rapid.T) {
				require.Equal(rt, total, w.outstanding)
				require.GreaterOrEqual(rt, w.limit, 1)
				require.LessOrEqual(rt, w.batch(), w.limit)
				require.LessOrEqual(rt, w.limit, 10_000)
			},
		})
	})
}

func TestWindowFollowsRate(t *testing.T) {
	w := newWindow(100, 1<<20)
	now := time.Unix(0, 0)
	run := func(perSecond int) {
		for range 400 {
			for w.fits(10) {
				w.send(10, now)
			}
			now = now.Add(10 * time.Second / time.Duration(perSecond))
			w.done(10, now)
		}
	}
	run(5000)
	require.InDelta(t, 1000, w.limit, 100, "200 ms of 5000 per second")
	run(1000)
	require.InDelta(t, 200, w.limit, 20)
	run(50)
	require.LessOrEqual(t, w.limit, 50, "less than the lower bound, which would take two seconds")
	run(5000)
	require.InDelta(t, 1000, w.limit, 100, "it grows again")
}

// TestWindowFillsADelayedChannel: a consumer that answers late and not slowly gets more and more.
func TestWindowFillsADelayedChannel(t *testing.T) {
	const delay, bandwidth = 100 * time.Millisecond, 1 << 20
	w := newWindow(1000, 1<<30)
	now := time.Unix(0, 0)
	type batch struct {
		at   time.Time
		size int
	}
	var inFlight []batch
	sent := 0
	for range 10_000 { // milliseconds
		for w.fits(50) && sent < bandwidth/1000 {
			w.send(50, now)
			inFlight, sent = append(inFlight, batch{now.Add(delay), 50}), sent+50
		}
		sent = max(0, sent-bandwidth/1000)
		now = now.Add(time.Millisecond)
		for len(inFlight) > 0 && !inFlight[0].at.After(now) {
			w.done(inFlight[0].size, now)
			inFlight = inFlight[1:]
		}
	}
	require.Greater(t, w.rate, 0.9*bandwidth)
}

func FuzzDecodeFrame(f *testing.F) {
	f.Add([]byte{byte(Data), 0, 0, 0, 1, 42})
	f.Add(appendBarrier(nil, barrier.Barrier{Checkpoint: 9, Full: true, Stop: true}))
	f.Add(appendWatermark(nil, -1))
	f.Add([]byte{byte(End)})
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := decodeFrame(frame)
		if err != nil {
			return
		}
		switch e.Kind {
		case Barrier:
			require.Equal(t, frame, appendBarrier(nil, e.Barrier))
		case Watermark:
			require.Equal(t, frame, appendWatermark(nil, e.Watermark))
		case Data:
			require.Len(t, e.Encoded, len(frame)-dataHeader)
		default:
			require.Equal(t, []byte{byte(e.Kind)}, frame)
		}
	})
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte{byte(part), 0, 0, 0, 0, 0, 0, 0, 2, 1}, []byte{byte(part), 0, 0, 0, 0, 0, 0, 0, 2, 2})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var a assembler
		if frame, err := a.add(first); err != nil || frame != nil {
			return
		}
		frame, err := a.add(second)
		if err == nil && frame != nil {
			require.Equal(t, append(first[partHeader:len(first):len(first)], second[partHeader:]...), frame)
		}
	})
}
