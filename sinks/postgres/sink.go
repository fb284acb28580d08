package postgressink

import (
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/sinks"
)

// New makes a sink that writes to a table, given as table or schema.table with letters as they are in the catalogue. url is one that
// PostgreSQL's own programs take, such as postgres://user@host:5432/database. bind returns a record's values for the columns, in their
// order; they are of the types that pgx encodes to the columns' types. What they refer to must not be modified afterwards.
func New[T any](url, table string, columns []string, bind func(T) []any, opts ...Option) sinks.Sink[T] {
	s := newSettings(url, table, columns, opts)
	return sinks.TwoPhase(sinks.TwoPhaseConfig[T, *txn]{
		Kind:      "postgres",
		Target:    s.target(),
		Guarantee: s.guarantee,
		Validate:  s.validate,
		Ordered:   len(s.keys) > 0, // the row that is moved last stays
		New: func() (sinks.TwoPhaseCommitSink[T, *txn], error) {
			return &transactional[T]{settings: s, bind: bind}, nil
		},
		NewWriter: func() (sinks.Writer[T], error) {
			return &plain[T]{settings: s, bind: bind}, nil
		},
	})
}

// onConflict is the end of an INSERT that replaces the row with the same keys; empty without keys.
func onConflict(columns, keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	var set string
	for _, c := range columns {
		if slices.Contains(keys, c) {
			continue
		}
		if set != "" {
			set += ", "
		}
		name := pgx.Identifier{c}.Sanitize()
		set += name + " = EXCLUDED." + name
	}
	if set == "" {
		return " ON CONFLICT (" + quoted(keys) + ") DO NOTHING"
	}
	return " ON CONFLICT (" + quoted(keys) + ") DO UPDATE SET " + set
}
