package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/pgtest"
)

func TestDataSurvivesAKill(t *testing.T) {
	s := pgtest.StartFor(t, pgtest.Config{Settings: map[string]string{"max_prepared_transactions": "3"}})
	url := s.Database(t)
	exec := func(sql string) {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE TABLE t (n int)")
	exec("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'x'")
	require.NoError(t, s.Kill())
	require.Error(t, s.Kill())
	require.NoError(t, s.Restart(t.Context()))
	exec("COMMIT PREPARED 'x'")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var n, prepared int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT n, current_setting('max_prepared_transactions')::int FROM t").Scan(&n, &prepared))
	require.Equal(t, []int{1, 3}, []int{n, prepared})
	require.NoError(t, s.Stop())
}
