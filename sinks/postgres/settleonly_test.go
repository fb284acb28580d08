package postgressink_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/pgtest"
	"github.com/weir-stream/weir/operator"
	postgressink "github.com/weir-stream/weir/sinks/postgres"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// settling is a worker that writes no records, as a settling attempt and a look at an ended job have them.
func settling(attempt uint64) sinktest.Deployment {
	d := deployment(attempt, nil)
	d.SettleOnly = true
	return d
}

func TestWhoOnlyLooksWritesNothing(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Shared(t), numbersTable)
	for attempt := range uint64(3) {
		a, err := sinktest.Open[int](t, t.Context(), d.sink(), settling(attempt+1))
		require.NoError(t, err)
		_, err = a.Instance.(operator.TransactionInspector).InspectTransactions(t.Context(), nil, operator.Scope{Parallelism: 1})
		require.NoError(t, err)
	}
	require.Zero(t, d.value("SELECT count(*) FROM pg_tables WHERE schemaname = 'weir'"), "no bookkeeping for who keeps no books")
	start[int](t, d.sink(), deployment(9, nil))
	for attempt := range uint64(3) {
		_, err := sinktest.Open[int](t, t.Context(), d.sink(), settling(attempt+10))
		require.NoError(t, err)
	}
	require.Equal(t, 1, d.value("SELECT count(*) FROM weir.writers"))
}

// What was prepared is settled whatever has become of the table's columns.
func TestSettlingNeedsNoTable(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, pgtest.Shared(t), numbersTable)
			first := start[int](t, d.sink(postgressink.Using(mode)), deployment(1, nil))
			first.Write(1)
			first.Barrier(1)
			first.Drop()
			if mode == postgressink.Staged { // a prepared transaction holds a lock on it
				d.exec("DROP TABLE numbers")
			}
			dep := settling(2)
			dep.Former = []operator.FormerAttempt{sinktest.Former(1)}
			start[int](t, d.sink(postgressink.Using(mode)), dep)
			require.NoError(t, d.settled(t.Context()))
			require.Equal(t, 1, d.value("SELECT count(*) FROM weir.writers WHERE attempt = 1 AND fenced"))
		})
	}
}

// A former writer need not have come to its first row, or table, to be kept from writing.
func TestAWriterIsFencedBeforeThereIsBookkeeping(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Shared(t), numbersTable)
	dep := settling(2)
	dep.Former = []operator.FormerAttempt{sinktest.Former(1)}
	start[int](t, d.sink(), dep)
	require.Equal(t, 1, d.value("SELECT count(*) FROM weir.writers WHERE attempt = 1 AND fenced"))
}

// A session of a former attempt that cannot be ended holds up neither commits nor the close of the running one, and is told.
func TestFencingAgainHoldsNothingUp(t *testing.T) {
	t.Parallel()
	d := newDatabase(t, pgtest.Shared(t), numbersTable)
	a := start[int](t, d.sink(), deployment(2, nil, sinktest.Former(1)))
	a.Write(1)
	a.Barrier(1)
	// A session whose name is not the writer's is none that fencing ends, as one that the user has no right to end.
	stuck := d.connect(t.Context())
	defer func() { _ = stuck.Close(context.Background()) }()
	_, err := stuck.Exec(t.Context(), "BEGIN; SELECT FROM weir.writers WHERE attempt = 1 FOR KEY SHARE")
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	fenced := make(chan error, 1)
	go func() {
		fenced <- a.Instance.(operator.Committer).RecoverAbort(ctx, operator.Scope{Parallelism: 1, Again: true, Attempts: []operator.FormerAttempt{sinktest.Former(1)}})
	}()
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(a.Stats.Waits.Current(), func(w operator.Wait) bool {
			return w.Last != nil && strings.Contains(w.Last.Error(), "subtask 0 of attempt 1 still has a transaction open")
		})
	}, time.Minute, 5*time.Millisecond, "it is at it, and tells")
	begin := time.Now()
	require.NoError(t, a.TryCommit(1))
	require.Less(t, time.Since(begin), 10*time.Second, "one pass is short, and another waits 30 s")
	cancel()
	require.Error(t, <-fenced)
}
