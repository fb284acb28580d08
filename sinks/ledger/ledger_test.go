package ledger_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/sinks/ledger"
)

// Transactions are named by the checkpoint that prepared them.
type (
	transactions = ledger.Ledger[uint64]
	entry        = ledger.Entry[uint64]
)

func checkpoints(es []entry) []uint64 {
	var out []uint64
	for _, e := range es {
		out = append(out, e.Checkpoint)
	}
	return out
}

func TestLedgerRefusesBarriersOutOfOrder(t *testing.T) {
	var l transactions
	_, err := l.Snapshot(2)
	require.NoError(t, err)
	require.Error(t, l.Prepare(2, 2))
	_, err = l.Snapshot(1)
	require.Error(t, err)
}

func TestLedgerFreesOnlyWhatACompletedCheckpointDoesNotList(t *testing.T) {
	var l transactions
	require.NoError(t, l.Prepare(1, 1))
	_, _ = l.Snapshot(1)
	require.Empty(t, l.Complete(1))
	e := l.Next()
	// Barrier 2 passes while the commit is under way: its snapshot lists the transaction still.
	listed, err := l.Snapshot(2)
	require.NoError(t, err)
	require.Equal(t, []uint64{1}, checkpoints(listed))
	require.Empty(t, l.Committed(e))
	require.Empty(t, l.Complete(2), "checkpoint 2 lists it")
	listed, _ = l.Snapshot(3)
	require.Empty(t, listed)
	require.Equal(t, []uint64{1}, l.Complete(3))
	require.Empty(t, l.Complete(3))
}

func TestLedgerStopsAfterAFailureWhenTold(t *testing.T) {
	for _, stop := range []bool{false, true} {
		var l transactions
		for n := uint64(1); n <= 2; n++ {
			require.NoError(t, l.Prepare(n, n))
			_, _ = l.Snapshot(n)
		}
		l.Complete(2)
		l.Failed(l.Next(), stop)
		require.Equal(t, stop, l.Next() == nil, "other failures leave the later ones to be tried")
		require.False(t, l.Settled(2))
	}
}

// TestLedgerKeepsItsPromises runs random lives of a sink against what must hold whatever happens.
func TestLedgerKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l transactions
		var barrier, completed uint64
		var running *entry
		prepared := map[uint64]bool{}
		confirmed := map[uint64]bool{}
		freed := map[uint64]bool{}
		lists := map[uint64][]uint64{} // by checkpoint
		failedAny, stopped := false, false
		var order []uint64
		free := func(ns []uint64) {
			for _, n := range ns {
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
					require.NoError(t, l.Prepare(barrier, barrier))
					prepared[barrier] = true
				}
				es, err := l.Snapshot(barrier)
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
				free(l.Complete(n))
			},
			"commit": func(t *rapid.T) {
				e := l.Next()
				if running != nil {
					require.Nil(t, e, "one commit at a time")
					return
				}
				if e == nil {
					return
				}
				require.False(t, stopped, "committed behind a failure that stops")
				require.LessOrEqual(t, e.Checkpoint, completed, "committed before its checkpoint completed")
				require.False(t, confirmed[e.Checkpoint], "committed twice")
				order = append(order, e.Checkpoint)
				require.True(t, slices.IsSorted(order), "oldest first")
				running = e
			},
			"answer": func(t *rapid.T) {
				if running == nil {
					t.Skip("no commit under way")
				}
				if rapid.IntRange(0, 9).Draw(t, "answer") == 0 {
					stop := rapid.Bool().Draw(t, "stop")
					l.Failed(running, stop)
					failedAny, stopped = true, stopped || stop
				} else {
					confirmed[running.Checkpoint] = true
					free(l.Committed(running))
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
				require.Equal(t, all, l.Settled(completed))
			},
		})
	})
}
