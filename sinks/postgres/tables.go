package postgressink

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/operator"
)

// in returns the quoted name of a table of the bookkeeping.
func in(schema, table string) string { return pgx.Identifier{schema, table}.Sanitize() }

const (
	writersTable   = "writers"
	committedTable = "committed"
)

// definition is a table that the sink needs, and the statement that makes it.
type definition struct{ name, create string }

// bookkeeping are the tables that every mode needs.
func (s *settings) bookkeeping() []definition {
	return []definition{
		{in(s.schema, writersTable), "CREATE TABLE IF NOT EXISTS " + in(s.schema, writersTable) + ` (
  sink text, attempt bigint, subtask int,
  fenced boolean NOT NULL DEFAULT false,
  settled_through bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (sink, attempt, subtask))`},
		{in(s.schema, committedTable), "CREATE TABLE IF NOT EXISTS " + in(s.schema, committedTable) + ` (
  sink text, attempt bigint, subtask int, sequence bigint,
  rows bigint NOT NULL, written_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (sink, attempt, subtask, sequence))`},
	}
}

// stagingName names the staging table of the sink's table and columns, which sinks share that agree in both.
func (s *settings) stagingName() string {
	sum := sha256.Sum256([]byte(s.table.Sanitize() + "\x00" + quoted(s.columns)))
	table := s.table[len(s.table)-1]
	return fmt.Sprintf("staged_%.40s_%x", table, sum[:4])
}

// stagingTableName is stagingName with its schema, quoted.
func (s *settings) stagingTableName() string { return in(s.schema, s.stagingName()) }

// stagingColumns come before the sink's own.
var stagingColumns = []string{"weir_sink", "weir_attempt", "weir_subtask", "weir_sequence", "weir_row"}

// stagingTable has the sink's columns with the same types and no constraints.
func (s *settings) stagingTable() []definition {
	name := s.stagingTableName()
	create := "CREATE TABLE IF NOT EXISTS " + name + " AS SELECT ''::text AS weir_sink, 0::bigint AS weir_attempt, 0::int AS weir_subtask, " +
		"0::bigint AS weir_sequence, 0::bigint AS weir_row, " + quoted(s.columns) + " FROM " + s.table.Sanitize() + " WITH NO DATA"
	index := "CREATE INDEX ON " + name + " (weir_sink, weir_attempt, weir_subtask, weir_sequence)"
	return []definition{{name, create + ";\n" + index}}
}

// ensure makes the tables that are missing.
func (s *settings) ensure(ctx context.Context, conn *pgx.Conn, tables []definition) error {
	missing := func() ([]definition, error) {
		var out []definition
		for _, d := range tables {
			there, err := exists(ctx, conn, d.name)
			if err != nil {
				return nil, err
			}
			if !there {
				out = append(out, d)
			}
		}
		return out, nil
	}
	if need, err := missing(); err != nil || len(need) == 0 {
		return err
	}
	var statements []string
	err := within(ctx, conn, func() error {
		// One subtask makes them, the others wait and find them.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext($1), hashtext('weir bookkeeping'))", s.schema); err != nil {
			return explain(err)
		}
		need, err := missing()
		if err != nil || len(need) == 0 {
			return err
		}
		var schema bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", s.schema).Scan(&schema); err != nil {
			return explain(err)
		}
		if !schema {
			statements = append(statements, "CREATE SCHEMA "+pgx.Identifier{s.schema}.Sanitize())
		}
		for _, d := range need {
			statements = append(statements, d.create)
		}
		for _, sql := range statements {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return explain(err)
			}
		}
		return nil
	})
	if hasState(err, stateNoRight) {
		return fmt.Errorf("the user may not make the sink's own tables; have an administrator run the following, and grant the user USAGE on the schema and "+
			"SELECT, INSERT, UPDATE, DELETE on the tables, or name another schema by Bookkeeping:\n%s;\n%w", strings.Join(statements, ";\n"), err)
	}
	return err
}

func exists(ctx context.Context, conn *pgx.Conn, table string) (bool, error) {
	var there bool
	err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&there)
	if hasState(err, stateNoRight) {
		return false, fmt.Errorf("grant the user USAGE on the schema of %s: %w", table, explain(err))
	}
	return there, explain(err)
}

// fits checks that a staging table of an earlier day still has the types of the table.
func (s *settings) fits(ctx context.Context, conn *pgx.Conn, m *server) error {
	name := s.stagingTableName()
	rows, err := conn.Query(ctx, "SELECT "+quoted(s.columns)+" FROM "+name+" WHERE false")
	if err != nil {
		return explain(err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return fmt.Errorf("staging table %s: %w", name, explain(err))
	}
	for i, f := range rows.FieldDescriptions() {
		if f.DataTypeOID != m.types[i] {
			return operator.Fatal(fmt.Errorf("column %s of table %s has another type than in the staging table %s: when no job has rows there, drop the staging table, which is made anew",
				s.columns[i], strings.Join(s.table, "."), name))
		}
	}
	return nil
}
