package barrier_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

func bar(n uint64) barrier.Barrier { return barrier.Barrier{Checkpoint: n} }

func TestAlignerTwoChannels(t *testing.T) {
	a := barrier.NewAligner(2)
	require.Equal(t, barrier.Effect{Block: true}, a.Barrier(0, bar(1)))
	n, ok := a.Aligning()
	require.True(t, ok)
	require.Equal(t, uint64(1), n)
	require.Equal(t, barrier.Effect{UnblockAll: true, Snapshot: true, Barrier: bar(1)}, a.Barrier(1, bar(1)))
	_, ok = a.Aligning()
	require.False(t, ok)
}

func TestAlignerHigherBarrierDropsAlignment(t *testing.T) {
	a := barrier.NewAligner(2)
	a.Barrier(0, bar(1))
	require.Equal(t, barrier.Effect{UnblockAll: true, Block: true}, a.Barrier(1, bar(2)))
	require.Equal(t, barrier.Effect{}, a.Barrier(1, bar(1)), "the overtaken barrier is discarded")
	require.True(t, a.Barrier(0, bar(2)).Snapshot)
}

func TestAlignerAbortDiscardsLaterBarriers(t *testing.T) {
	a := barrier.NewAligner(2)
	a.Barrier(0, bar(1))
	require.Equal(t, barrier.Effect{UnblockAll: true}, a.Abort(3))
	require.Equal(t, barrier.Effect{}, a.Barrier(1, bar(1)))
	require.Equal(t, barrier.Effect{}, a.Barrier(1, bar(3)))
	require.Equal(t, barrier.Effect{Block: true}, a.Barrier(1, bar(4)))
	require.Equal(t, barrier.Effect{}, a.Abort(3), "an abort of older ones leaves the alignment")
	require.True(t, a.Barrier(0, bar(4)).Snapshot)
}

func TestAlignerEndedChannelCounts(t *testing.T) {
	a := barrier.NewAligner(2)
	a.Barrier(0, bar(1))
	require.Equal(t, barrier.Effect{UnblockAll: true, Snapshot: true, Barrier: bar(1)}, a.End(1))
	require.True(t, a.Barrier(0, bar(2)).Snapshot)
	require.Equal(t, barrier.Effect{}, a.Barrier(1, bar(2)), "a barrier on the ended channel comes late")
	require.Equal(t, barrier.Effect{}, a.End(0))
	require.True(t, a.Barrier(1, bar(3)).Snapshot, "with all channels ended the first barrier is enough")
}

// TestAlignerRandom runs random events against channels that are FIFO queues, and checks that each snapshot separates the records
// before the barrier from those after it on every channel, and that nothing stays blocked for ever.
func TestAlignerRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		channels := rapid.IntRange(1, 4).Draw(rt, "channels")
		a := barrier.NewAligner(channels)
		type element struct {
			record  bool
			barrier uint64
			end     bool
		}
		queues := make([][]element, channels)
		ended := make([]bool, channels) // by the producer
		read := make([]bool, channels)  // end was read
		blocked := make([]bool, channels)
		// seen is the highest barrier read on each channel after which records were processed.
		seen := make([]uint64, channels)
		var next, last, aborted uint64
		apply := func(ch int, e barrier.Effect) {
			if e.UnblockAll {
				clear(blocked)
			}
			if e.Block {
				blocked[ch] = true
			}
			if e.Snapshot {
				n := e.Barrier.Checkpoint
				require.Greater(rt, n, last)
				require.Greater(rt, n, aborted)
				last = n
				for c := range channels {
					require.LessOrEqual(rt, seen[c], n, "records after a later barrier were processed")
					if !read[c] {
						require.Equal(rt, n, seen[c], "channel %d has not delivered barrier %d", c, n)
					}
				}
			}
		}
		step := func(ch int) {
			el := queues[ch][0]
			queues[ch] = queues[ch][1:]
			switch {
			case el.record:
				require.False(rt, blocked[ch])
				if n, ok := a.Aligning(); ok {
					require.Less(rt, seen[ch], n, "a record of checkpoint %d+1 was read before its snapshot", n)
				}
			case el.end:
				read[ch] = true
				apply(ch, a.End(ch))
			default:
				seen[ch] = el.barrier
				apply(ch, a.Barrier(ch, bar(el.barrier)))
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"record": func(rt *rapid.T) {
				ch := rapid.IntRange(0, channels-1).Draw(rt, "ch")
				if !ended[ch] {
					queues[ch] = append(queues[ch], element{record: true})
				}
			},
			"trigger": func(rt *rapid.T) {
				next++
				// A trigger may reach only some producers.
				reached := rapid.SliceOfN(rapid.Bool(), channels, channels).Draw(rt, "reached")
				for ch, ok := range reached {
					if ok {
						queues[ch] = append(queues[ch], element{barrier: next})
					}
				}
			},
			"end": func(rt *rapid.T) {
				ch := rapid.IntRange(0, channels-1).Draw(rt, "ch")
				if !ended[ch] {
					ended[ch] = true
					queues[ch] = append(queues[ch], element{end: true})
				}
			},
			"abort": func(rt *rapid.T) {
				n := rapid.Uint64Range(0, next).Draw(rt, "n")
				aborted = max(aborted, n)
				apply(0, a.Abort(n))
				_ = n
			},
			"read": func(rt *rapid.T) {
				ch := rapid.IntRange(0, channels-1).Draw(rt, "ch")
				if len(queues[ch]) > 0 && !blocked[ch] {
					step(ch)
				}
			},
		})
		// One full trigger gets everything going again, whatever happened before.
		next++
		for ch := range channels {
			queues[ch] = append(queues[ch], element{barrier: next})
		}
		for progress := true; progress; {
			progress = false
			for ch := range channels {
				if len(queues[ch]) > 0 && !blocked[ch] {
					step(ch)
					progress = true
				}
			}
		}
		require.Equal(rt, next, last)
		for ch := range channels {
			require.Empty(rt, queues[ch])
		}
	})
}
