package postgressink_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/pgtest"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	postgressink "github.com/weir-stream/weir/sinks/postgres"
	"github.com/weir-stream/weir/sinks/sinktest"
	"github.com/weir-stream/weir/sources"
)

var modes = []postgressink.Mode{postgressink.Prepared, postgressink.Staged}

func deployment(attempt uint64, restored []*snapshotv1.Committable, former ...operator.FormerAttempt) sinktest.Deployment {
	return sinktest.Deployment{
		Job: "job", Attempt: attempt, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints(), Restored: restored, Former: former,
	}
}

func start[T any](t *testing.T, sink sinks.Sink[T], d sinktest.Deployment) *sinktest.Attempt[T] {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return sinktest.Start[T](t, ctx, sink, d)
}

func tryOpen[T any](t *testing.T, sink sinks.Sink[T]) error {
	t.Helper()
	_, err := sinktest.Open[T](t, t.Context(), sink, deployment(1, nil))
	return err
}

func TestOutputThatSomebodyRemovedIsProvenLost(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, pgtest.Shared(t), numbersTable)
			first := start[int](t, d.sink(postgressink.Using(mode)), deployment(1, nil))
			first.Write(1, 2)
			restored := first.Barrier(1)
			if mode == postgressink.Prepared {
				d.exec("ROLLBACK PREPARED '" + d.text("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()") + "'")
			} else {
				d.exec("DELETE FROM weir." + d.text("SELECT tablename FROM pg_tables WHERE tablename LIKE 'staged%'") + " WHERE n = 1")
			}
			for _, err := range []error{
				first.TryCommit(1),
				func() error {
					a, err := sinktest.Open[int](t, t.Context(), d.sink(postgressink.Using(mode)), deployment(2, nil))
					require.NoError(t, err)
					return a.Instance.(operator.Committer).RecoverCommit(t.Context(), restored)
				}(),
			} {
				var lost *sinks.LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
				require.EqualValues(t, 1, lost.Checkpoint)
				require.EqualValues(t, 2, lost.Records())
				require.ErrorContains(t, err, "numbers in database ")
			}
			require.Zero(t, d.value("SELECT count(*) FROM numbers"))
		})
	}
}

// A savepoint may list transactions that were committed, and let go by the job, long ago.
func TestProofsThatWereLetGoStillProve(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, pgtest.Shared(t), numbersTable)
			first := start[int](t, d.sink(postgressink.Using(mode)), deployment(1, nil))
			var savepoint []*snapshotv1.Committable
			for n := range 6 {
				first.Write(n)
				cs := first.Barrier(uint64(n + 1))
				if n == 1 {
					savepoint = cs
				}
				first.Commit(uint64(n + 1))
			}
			require.Less(t, d.value("SELECT count(*) FROM weir.committed"), 3, "what is not needed is let go")
			child := deployment(1, savepoint)
			child.Job = "another job"
			start[int](t, d.sink(postgressink.Using(mode)), child)
			require.Equal(t, 6, d.value("SELECT count(*) FROM numbers"))

			// The same after the attempt is fenced.
			start[int](t, d.sink(postgressink.Using(mode)), deployment(2, nil, sinktest.Former(1)))
			require.Zero(t, d.value("SELECT count(*) FROM weir.committed"))
			child.Job = "a third job"
			start[int](t, d.sink(postgressink.Using(mode)), child)
			require.Equal(t, 6, d.value("SELECT count(*) FROM numbers"))
		})
	}
}

func TestWriterThatWasReplacedIsToldSo(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, pgtest.Shared(t), numbersTable)
			first := start[int](t, d.sink(postgressink.Using(mode)), deployment(1, nil))
			first.Write(1)
			first.Barrier(1)
			start[int](t, d.sink(postgressink.Using(mode)), deployment(2, nil, sinktest.Former(1)))
			// Its transaction is gone, but that is no loss: its records are read again.
			done := make(chan error, 1)
			first.Notify(1, done)
			time.AfterFunc(2*time.Second, first.Drop) // it would be repeated for a minute
			err := <-done
			require.Error(t, err)
			require.NotErrorIs(t, err, sinks.ErrLost)
			require.Contains(t, err.Error(), "a later attempt of the job has taken over")
		})
	}
}

// Which mode is taken may change from one attempt to the next; each can finish and end what the other has left.
func TestModesFinishEachOthersTransactions(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), numbersTable)
	var restored []*snapshotv1.Committable
	var former []operator.FormerAttempt
	for n := uint64(1); n <= 4; n++ {
		a := start[int](t, d.sink(postgressink.Using(modes[n%2])), deployment(n, restored, former...))
		a.Write(int(n))
		restored = a.Barrier(n)
		a.Write(-int(n)) // prepared and not restored
		a.Barrier(n + 1)
		a.Write(-int(n)) // open
		former = append(former, sinktest.Former(n))
	}
	start[int](t, d.sink(), deployment(5, restored, former...))
	require.NoError(t, d.settled(t.Context()))
	got, err := d.numbers(t.Context())
	require.NoError(t, err)
	require.Equal(t, []int{1, 2, 3, 4}, got)
}

type pair struct{ key, value any }

func (d database) pairs(opts ...postgressink.Option) sinks.Sink[pair] {
	return postgressink.New(d.url, "public.pairs", []string{"key", "value"}, func(p pair) []any { return []any{p.key, p.value} }, opts...)
}

const pairsTable = "CREATE TABLE pairs (key int PRIMARY KEY CHECK (key < 1000), value text)"

func TestUpsertKeepsTheLastOfEachKey(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	for i, g := range []graph.Guarantee{graph.ExactlyOnce, graph.AtLeastOnce} {
		dep := deployment(uint64(i+1), nil)
		dep.Guarantee = g
		a := start[pair](t, d.pairs(postgressink.Upsert("key"), postgressink.BatchRows(3)), dep)
		for n := range 10 {
			a.Write(pair{n % 4, "old"})
		}
		a.Write(pair{2, "new"}, pair{2, "newest"})
		a.Barrier(1)
		if g == graph.ExactlyOnce {
			a.Commit(1)
		}
		require.Equal(t, "0 old,1 old,2 newest,3 old", d.text("SELECT string_agg(key || ' ' || value, ',' ORDER BY key) FROM pairs"))
		d.exec("UPDATE pairs SET value = 'changed'")
	}
}

// Several subtasks may hold the same key at the same time; none waits for another's checkpoint.
func TestUpsertsOfOneKeyInSeveralSubtasksDoNotBlock(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	var all []*sinktest.Attempt[pair]
	for subtask := range 2 {
		dep := deployment(1, nil)
		dep.Subtask, dep.Parallelism = subtask, 2
		a := start[pair](t, d.pairs(postgressink.Upsert("key"), postgressink.BatchRows(1)), dep)
		a.Write(pair{1, "x"}, pair{2, "y"})
		a.Barrier(1)
		a.Write(pair{1, "z"}) // of the next checkpoint, while the first is pending
		all = append(all, a)
	}
	for _, a := range all {
		a.Commit(1)
	}
	require.Equal(t, 2, d.value("SELECT count(*) FROM pairs WHERE value <> 'z'"))
}

func TestRefusedRowsAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		rows []pair
		want []string
	}{
		"unique":   {[]pair{{1, "a"}, {2, "b"}, {1, "c"}}, []string{"key=1, value=c", "pairs_pkey", "already exists"}},
		"check":    {[]pair{{1, "a"}, {1000, "b"}}, []string{"key=1000, value=b", "pairs_key_check"}},
		"null":     {[]pair{{1, "a"}, {nil, "b"}}, []string{"key=<nil>, value=b", "not-null"}},
		"encoding": {[]pair{{1, "a"}, {"five", "b"}}, []string{"key=five, value=b", "column key"}},
		"text":     {[]pair{{1, "a"}, {2, "b\x00"}}, []string{"key=2", "0x00"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, pgtest.Shared(t), pairsTable)
			a := start[pair](t, d.pairs(), deployment(1, nil))
			a.Write(c.rows...)
			_, err := a.TryBarrier(1)
			require.Error(t, err)
			require.Equal(t, operator.ClassFatal, operator.ClassOf(err), err)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
			require.Zero(t, d.value("SELECT count(*) FROM pairs"))
		})
	}
}

// A row that the table refuses only at the move stops the job, and what was staged stays.
func TestStagedRowsThatTheTableRefusesStay(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	a := start[pair](t, d.pairs(postgressink.Using(postgressink.Staged)), deployment(1, nil))
	a.Write(pair{1, "a"})
	restored := a.Barrier(1)
	d.exec("INSERT INTO pairs VALUES (1, 'in the way')")
	err := a.TryCommit(1)
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err), err)
	require.ErrorContains(t, err, "they stay staged")
	require.ErrorContains(t, err, "Key (key)=(1) already exists")
	d.exec("DELETE FROM pairs")
	start[pair](t, d.pairs(), deployment(2, restored, sinktest.Former(1)))
	require.Equal(t, "a", d.text("SELECT value FROM pairs"))
}

// A transaction whose move failed does not let newer rows by, or the restore would put its older ones over them.
func TestUpsertsAreMovedInOrderWhenOneFails(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	sink := d.pairs(postgressink.Upsert("key"))
	a := start[pair](t, sink, deployment(1, nil))
	a.Write(pair{1, "old"}, pair{1000, "refused"})
	a.Barrier(1)
	a.Write(pair{1, "new"})
	restored := a.Barrier(2)
	err := a.TryCommit(2)
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err), err)
	require.ErrorContains(t, err, "they stay staged")
	require.Zero(t, d.value("SELECT count(*) FROM pairs"))
	d.exec("ALTER TABLE pairs DROP CONSTRAINT pairs_key_check")
	start[pair](t, sink, deployment(2, restored, sinktest.Former(1)))
	require.Equal(t, "1 new,1000 refused", d.text("SELECT string_agg(key || ' ' || value, ',' ORDER BY key) FROM pairs"))
}

func TestFailuresHaveTheirClass(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	for name, c := range map[string]struct {
		sink  sinks.Sink[int]
		class operator.Class
		want  string
	}{
		"table":    {postgressink.New(d.url, "missing", []string{"n"}, bindNumber), operator.ClassFatal, `relation "missing" does not exist`},
		"column":   {postgressink.New(d.url, "pairs", []string{"n"}, bindNumber), operator.ClassFatal, `column "n" does not exist`},
		"values":   {postgressink.New(d.url, "pairs", []string{"key", "value"}, bindNumber), operator.ClassFatal, "1 values for 2 columns"},
		"database": {postgressink.New(strings.Replace(d.url, "/test_", "/none_", 1), "pairs", []string{"key"}, bindNumber), operator.ClassRestart, "does not exist"},
		"index": {
			postgressink.New(d.url, "pairs", []string{"value"}, bindNumber, postgressink.Upsert("value")), operator.ClassFatal,
			`no unique index on exactly the columns value that Upsert names; make one, CREATE UNIQUE INDEX ON "pairs" ("value")`,
		},
		"nobody": {postgressink.New("postgres://u@127.0.0.1:1/x", "pairs", []string{"key"}, bindNumber), operator.ClassUnavailable, "127.0.0.1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			err := tryOpen[int](t, c.sink)
			if err == nil {
				a := start[int](t, c.sink, deployment(1, nil))
				err = a.Collector.Collect(1, operator.NoTimestamp)
			}
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.class, operator.ClassOf(err))
		})
	}
}

// Whoever meets a lock of somebody else is told how to find out whose it is, and the job waits until it is gone.
func TestLocksOfOthersAreHinted(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), pairsTable)
	holder := d.connect(t.Context())
	defer func() { _ = holder.Close(context.Background()) }()
	_, err := holder.Exec(t.Context(), "BEGIN; LOCK TABLE pairs")
	require.NoError(t, err)
	err = tryOpen[pair](t, d.pairs(postgressink.Deadline(time.Second)))
	require.ErrorContains(t, err, "table public.pairs: the server has not answered in time")
	require.ErrorContains(t, err, "pg_blocking_pids")
	require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
}

func TestRightsThatAreMissingAreSaid(t *testing.T) {
	server := pgtest.Shared(t)
	d := newDatabase(t, server, pairsTable)
	d.exec("DO $$ BEGIN CREATE ROLE weir_guest LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
	u, err := url.Parse(d.url)
	require.NoError(t, err)
	u.User = url.User("weir_guest")
	guest := database{t, u.String()}
	err = tryOpen[pair](t, guest.pairs())
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, "permission denied for table pairs")
	d.exec("GRANT SELECT, INSERT ON pairs TO weir_guest")
	err = tryOpen[pair](t, guest.pairs())
	require.ErrorIs(t, err, operator.ErrRefused)
	require.ErrorContains(t, err, `CREATE SCHEMA "weir"`)

	// What the error says helps.
	start[pair](t, d.pairs(), deployment(1, nil)) // an administrator's run makes the tables
	d.exec("GRANT USAGE ON SCHEMA weir TO weir_guest; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA weir TO weir_guest")
	dep := deployment(1, nil)
	dep.Job = "guest"
	a := start[pair](t, guest.pairs(), dep)
	a.Write(pair{1, "a"})
	restored := a.Barrier(1)
	a.Write(pair{2, "b"})
	a.Barrier(2)
	dep = deployment(2, restored, sinktest.Former(1))
	dep.Job = "guest"
	start[pair](t, guest.pairs(), dep)
	require.NoError(t, d.settled(t.Context()))
	require.Equal(t, 1, d.value("SELECT count(*) FROM pairs"))
}

// Settings of a database or user must not change what the sink relies on.
func TestDefaultsOfTheDatabaseDoNotMatter(t *testing.T) {
	d := newDatabase(t, pgtest.Shared(t), numbersTable)
	d.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); " +
		"EXECUTE format('ALTER DATABASE %I SET idle_in_transaction_session_timeout = ''1ms''', current_database()); " +
		"EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$")
	a := start[int](t, d.sink(postgressink.Using(postgressink.Prepared), postgressink.BatchRows(1)), deployment(1, nil))
	a.Write(1)
	require.Eventually(t, func() bool {
		return d.value("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") > 0
	}, 10*time.Second, 10*time.Millisecond)
	a.Write(2)
	a.Barrier(1)
	a.Commit(1)
	require.Equal(t, 2, d.value("SELECT count(*) FROM numbers"))
}

func TestServerWithoutPreparedTransactions(t *testing.T) {
	server := pgtest.StartFor(t, pgtest.Config{Settings: map[string]string{"max_prepared_transactions": "0"}})
	d := newDatabase(t, server, numbersTable)
	err := tryOpen[int](t, d.sink(postgressink.Using(postgressink.Prepared)))
	require.ErrorContains(t, err, "max_prepared_transactions")
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))

	first := start[int](t, d.sink(), deployment(1, nil))
	first.Write(1)
	restored := first.Barrier(1)
	require.Equal(t, 1, d.value("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'staged%'"))

	// A server that is killed loses nothing that is staged.
	require.NoError(t, server.Kill())
	require.NoError(t, server.Restart(t.Context())) // when it has started, no process of the former one is left
	err = first.Collector.Collect(2, operator.NoTimestamp)
	if err == nil {
		_, err = first.TryBarrier(2)
	}
	require.Error(t, err)
	require.True(t, operator.ClassOf(err).Passing(), err)
	start[int](t, d.sink(), deployment(2, restored, sinktest.Former(1)))
	require.Equal(t, 1, d.value("SELECT n FROM numbers"))
}

func TestCommitsGoOnAfterTheServerWasAway(t *testing.T) {
	server := pgtest.StartFor(t, pgtest.Config{})
	d := newDatabase(t, server, numbersTable)
	a := start[int](t, d.sink(postgressink.Using(postgressink.Prepared)), deployment(1, nil))
	a.Write(1)
	a.Barrier(1)
	require.NoError(t, server.Kill())
	done := make(chan error, 1)
	a.Notify(1, done)
	require.NoError(t, server.Restart(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, 1, d.value("SELECT n FROM numbers"))
}

func TestTransactionOfAnotherDatabaseIsNotTakenForLost(t *testing.T) {
	server := pgtest.Shared(t)
	d, other := newDatabase(t, server, numbersTable), newDatabase(t, server, numbersTable)
	a := start[int](t, d.sink(), deployment(1, nil))
	a.Write(1)
	restored := a.Barrier(1)
	b, err := sinktest.Open[int](t, t.Context(), other.sink(), deployment(2, nil))
	require.NoError(t, err)
	err = b.Instance.(operator.Committer).RecoverCommit(t.Context(), restored)
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	require.ErrorContains(t, err, "let it lead to the former")
}

func TestSettingsAreChecked(t *testing.T) {
	bind := func(int) []any { return nil }
	for name, c := range map[string]struct {
		sink sinks.Sink[int]
		want string
	}{
		"url":         {postgressink.New("", "t", []string{"a"}, bind), "no server given"},
		"malformed":   {postgressink.New("postgres://u:p%zz@h/d", "t", []string{"a"}, bind), "address of the PostgreSQL server"},
		"table":       {postgressink.New("postgres://h/d", "", []string{"a"}, bind), "no table given"},
		"columns":     {postgressink.New("postgres://h/d", "t", nil, bind), "no columns given"},
		"twice":       {postgressink.New("postgres://h/d", "t", []string{"a", "a"}, bind), `"a" is empty or given twice`},
		"key":         {postgressink.New("postgres://h/d", "t", []string{"a"}, bind, postgressink.Upsert("b")), `Upsert by "b"`},
		"combination": {postgressink.New("postgres://h/d", "t", []string{"a"}, bind, postgressink.Upsert("a"), postgressink.Using(postgressink.Prepared)), "does not go with Prepared"},
		"batch":       {postgressink.New("postgres://h/d", "t", []string{"a"}, bind, postgressink.BatchRows(0)), "BatchRows"},
		"deadline":    {postgressink.New("postgres://h/d", "t", []string{"a"}, bind, postgressink.Deadline(0)), "Deadline"},
		"schema":      {postgressink.New("postgres://h/d", "t", []string{"a"}, bind, postgressink.Bookkeeping("")), "Bookkeeping"},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorContains(t, c.sink.Validate(sources.JobSettings{}), c.want) })
	}
	ref := postgressink.New("postgres://u:${env:PASSWORD}@h/d", "s.t", []string{"a"}, bind, postgressink.Password("x"), postgressink.Guarantee(graph.AtLeastOnce))
	require.NoError(t, ref.Validate(sources.JobSettings{}))
	require.Equal(t, graph.AtLeastOnce, ref.Guarantee())
}
