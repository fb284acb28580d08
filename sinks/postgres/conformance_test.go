package postgressink_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/pgtest"
	"github.com/weir-stream/weir/sinks"
	postgressink "github.com/weir-stream/weir/sinks/postgres"
	"github.com/weir-stream/weir/sinks/sinktest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	err := pgtest.Close()
	if err == nil {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// database is a database of one test.
type database struct {
	t   *testing.T
	url string
}

func newDatabase(t *testing.T, s *pgtest.Server, setup ...string) database {
	d := database{t, s.Database(t)}
	t.Cleanup(d.rollBack)
	for _, sql := range setup {
		d.exec(sql)
	}
	return d
}

// rollBack ends what a test has left prepared: the identifiers of prepared transactions are shared by all databases of a server.
func (d database) rollBack() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return // a server of the test's own that it has stopped
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()")
	require.NoError(d.t, err)
	gids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(d.t, err)
	for _, gid := range gids {
		_, err := conn.Exec(ctx, "ROLLBACK PREPARED '"+gid+"'")
		require.NoError(d.t, err)
	}
}

func (d database) connect(ctx context.Context) *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(ctx, d.url)
	require.NoError(d.t, err)
	return conn
}

func (d database) exec(sql string) {
	d.t.Helper()
	ctx := context.Background()
	conn := d.connect(ctx)
	defer func() { _ = conn.Close(ctx) }()
	_, err := conn.Exec(ctx, sql)
	require.NoError(d.t, err)
}

func (d database) value(sql string) (n int) {
	d.t.Helper()
	d.scan(&n, sql)
	return n
}

func (d database) text(sql string) (s string) {
	d.t.Helper()
	d.scan(&s, sql)
	return s
}

func (d database) scan(to any, sql string) {
	d.t.Helper()
	ctx := context.Background()
	conn := d.connect(ctx)
	defer func() { _ = conn.Close(ctx) }()
	require.NoError(d.t, conn.QueryRow(ctx, sql).Scan(to))
}

func (d database) numbers(ctx context.Context) ([]int, error) {
	conn, err := pgx.Connect(ctx, d.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, "SELECT n FROM numbers ORDER BY at")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

// settled waits until no prepared transaction and no staged row is left.
func (d database) settled(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		open := d.value("SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()")
		if table := d.text("SELECT coalesce(max(tablename), '') FROM pg_tables WHERE schemaname = 'weir' AND tablename LIKE 'staged%'"); table != "" {
			open += d.value("SELECT count(*) FROM weir." + table)
		}
		if open == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d transactions or staged rows are left: %w", open, ctx.Err())
		case <-tick.C:
		}
	}
}

const numbersTable = "CREATE TABLE numbers (n int NOT NULL, at serial)"

func bindNumber(n int) []any { return []any{n} }

func (d database) sink(opts ...postgressink.Option) sinks.Sink[int] {
	return postgressink.New(d.url, "numbers", []string{"n"}, bindNumber, opts...)
}

func TestConformance(t *testing.T) {
	server := pgtest.Shared(t)
	for _, mode := range []postgressink.Mode{postgressink.Prepared, postgressink.Staged} {
		t.Run(mode.String(), func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Output {
				d := newDatabase(t, server, numbersTable)
				return sinktest.Output{
					Sink:    func() sinks.Sink[int] { return d.sink(postgressink.Using(mode)) },
					Read:    d.numbers,
					Settled: d.settled,
				}
			})
		})
	}
}
