package postgressink

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/operator"
)

// connect opens a connection of the writer.
func (s *settings) connect(ctx context.Context, w writer) (*pgx.Conn, error) {
	cfg, err := s.config(w.application())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", s.target(), explain(err))
	}
	return conn, nil
}

// begin starts a transaction whose rules do not depend on defaults of the server, the database or the user: each statement sees what was
// committed before it, no timeout for idle sessions ends it, and its commit is durable.
const begin = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;
SET LOCAL idle_in_transaction_session_timeout = 0;
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL`

// within runs do in a transaction of its own and commits it.
func within(ctx context.Context, conn *pgx.Conn, do func() error) error {
	if _, err := conn.Exec(ctx, begin); err != nil {
		return explain(err)
	}
	if err := do(); err != nil {
		// The error is what matters; a connection that cannot roll back is given up by the next use.
		_, _ = conn.Exec(ctx, "ROLLBACK")
		return err
	}
	_, err := conn.Exec(ctx, "COMMIT")
	return explain(err)
}

// server is what a sink learns of the other side.
type server struct {
	// id is the server's system identifier, empty where it is not told; database is the database in it.
	id, database string
	version      int
	maxPrepared  int
	// types are the types of the sink's columns, nil where nothing is written.
	types []uint32
}

// meet looks at the server.
func meet(ctx context.Context, conn *pgx.Conn) (*server, error) {
	var m server
	err := conn.QueryRow(ctx, `SELECT current_database(), current_setting('server_version_num')::int, current_setting('max_prepared_transactions')::int`).
		Scan(&m.database, &m.version, &m.maxPrepared)
	if err != nil {
		return nil, explain(err)
	}
	if m.id, err = systemID(ctx, conn); err != nil {
		return nil, err
	}
	return &m, nil
}

// types looks at the table and returns the types of the sink's columns.
func (s *settings) types(ctx context.Context, conn *pgx.Conn) ([]uint32, error) {
	rows, err := conn.Query(ctx, "SELECT "+quoted(s.columns)+" FROM "+s.table.Sanitize()+" WHERE false")
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", strings.Join(s.table, "."), explain(err))
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("table %s: %w", strings.Join(s.table, "."), explain(err))
	}
	var types []uint32
	for _, f := range rows.FieldDescriptions() {
		types = append(types, f.DataTypeOID)
	}
	return types, s.replaces(ctx, conn)
}

// replaces makes sure that the server finds an index for the keys of Upsert, by planning a statement that is not run.
func (s *settings) replaces(ctx context.Context, conn *pgx.Conn) error {
	if len(s.keys) == 0 {
		return nil
	}
	table := s.table.Sanitize()
	_, err := conn.Exec(ctx, "EXPLAIN INSERT INTO "+table+" ("+quoted(s.columns)+") SELECT "+quoted(s.columns)+" FROM "+table+
		" WHERE false ON CONFLICT ("+quoted(s.keys)+") DO NOTHING")
	if hasState(err, stateNoIndex) {
		return operator.Fatal(fmt.Errorf("table %s has no unique index on exactly the columns %s that Upsert names; make one, CREATE UNIQUE INDEX ON %s (%s): %w",
			strings.Join(s.table, "."), strings.Join(s.keys, ", "), table, quoted(s.keys), explain(err)))
	}
	if err != nil {
		return fmt.Errorf("table %s: %w", strings.Join(s.table, "."), explain(err))
	}
	return nil
}

// systemID returns what tells a server, with its replicas, from another; empty where the user may not know.
func systemID(ctx context.Context, conn *pgx.Conn) (string, error) {
	var id string
	err := conn.QueryRow(ctx, "SELECT system_identifier::text FROM pg_control_system()").Scan(&id)
	if hasState(err, stateNoRight) {
		return "", nil
	}
	return id, explain(err)
}
