package sinks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func named(n uint64) Committable { return Committable{Version: 1, Payload: fmt.Appendf(nil, "%d", n)} }

func checkpoints(es []entry) []uint64 {
	var out []uint64
	for _, e := range es {
		out = append(out, e.checkpoint)
	}
	return out
}

func TestLedgerRefusesBarriersOutOfOrder(t *testing.T) {
	var l ledger
	_, err := l.snapshot(2)
	require.NoError(t, err)
	require.Error(t, l.prepare(2, named(2)))
	_, err = l.snapshot(1)
	require.Error(t, err)
}

func TestLedgerFreesOnlyWhatACompletedCheckpointDoesNotList(t *testing.T) {
	var l ledger
	require.NoError(t, l.prepare(1, named(1)))
	_, _ = l.snapshot(1)
	require.Empty(t, l.complete(1))
	e := l.next()
	// Barrier 2 passes while the commit is under way: its snapshot lists the transaction still.
	listed, err := l.snapshot(2)
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, checkpoints(listed))
	require.Empty(t, l.committed(e))
	require.Empty(t, l.complete(2), "checkpoint 2 lists it")
	listed, _ = l.snapshot(3)
	require.Empty(t, listed)
	require.Equal(t, []Committable{named(1)}, l.complete(3))
	require.Empty(t, l.complete(3))
}

func TestLedgerStopsAfterALoss(t *testing.T) {
	for _, lost := range []bool{false, true} {
		var l ledger
		for n := uint64(1); n <= 2; n++ {
			require.NoError(t, l.prepare(n, named(n)))
			_, _ = l.snapshot(n)
		}
		l.complete(2)
		l.failed(l.next(), lost)
		require.Equal(t, lost, l.next() == nil, "other errors leave the later ones to be tried")
		require.False(t, l.settled(2))
	}
}

// TestLedgerKeepsItsPromises runs random lives of a sink against what must hold whatever happens.
func TestLedgerKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l ledger
		var barrier, completed uint64
		var running *entry
		prepared := map[uint64]bool{}
		confirmed := map[uint64]bool{}
		freed := map[uint64]bool{}
		lists := map[uint64][]uint64{} // by checkpoint
		failedAny := false
		var order []uint64
		free := func(cs []Committable) {
			for _, c := range cs {
				var n uint64
				_, err := fmt.Sscan(string(c.Payload), &n)
				require.NoError(t, err)
				require.False(t, freed[n], "freed twice")
				require.True(t, confirmed[n], "freed before its commit")
				require.NotContains(t, lists[completed], n, "the last completed checkpoint lists it")
				freed[n] = true
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"barrier": func(t *rapid.T) {
				barrier += rapid.Uint64Range(1, 3).Draw(t, "step")
				if rapid.Bool().Draw(t, "records") {
					require.NoError(t, l.prepare(barrier, named(barrier)))
					prepared[barrier] = true
				}
				es, err := l.snapshot(barrier)
				require.NoError(t, err)
				lists[barrier] = checkpoints(es)
				for n := range prepared {
					require.Equal(t, !confirmed[n], slices.Contains(lists[barrier], n), "a snapshot lists exactly what is not confirmed")
				}
				require.True(t, slices.IsSorted(lists[barrier]))
			},
			"complete": func(t *rapid.T) {
				// Any checkpoint that was taken may complete; notices may be late or repeated.
				var taken []uint64
				for n := range lists {
					taken = append(taken, n)
				}
				if len(taken) == 0 {
					t.Skip("no checkpoint yet")
				}
				slices.Sort(taken)
				n := rapid.SampledFrom(taken).Draw(t, "checkpoint")
				completed = max(completed, n)
				free(l.complete(n))
			},
			"commit": func(t *rapid.T) {
				e := l.next()
				if running != nil {
					require.Nil(t, e, "one commit at a time")
					return
				}
				if e == nil {
					return
				}
				require.LessOrEqual(t, e.checkpoint, completed, "committed before its checkpoint completed")
				require.False(t, confirmed[e.checkpoint], "committed twice")
				order = append(order, e.checkpoint)
				require.True(t, slices.IsSorted(order), "oldest first")
				running = e
			},
			"answer": func(t *rapid.T) {
				if running == nil {
					t.Skip("no commit under way")
				}
				if rapid.IntRange(0, 9).Draw(t, "answer") == 0 {
					l.failed(running, false)
					failedAny = true
				} else {
					confirmed[running.checkpoint] = true
					free(l.committed(running))
				}
				running = nil
			},
			"": func(t *rapid.T) {
				if failedAny || running != nil {
					return
				}
				all := true
				for n := range prepared {
					all = all && (n > completed || confirmed[n])
				}
				require.Equal(t, all, l.settled(completed))
			},
		})
	})
}
