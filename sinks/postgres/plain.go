package postgressink

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/sinks"
)

// plain is the sink of one subtask for the guarantees without transactions: each batch is committed at once.
type plain[T any] struct {
	settings
	bind  func(T) []any
	conn  *pgx.Conn
	batch batch
}

var _ sinks.Writer[int] = (*plain[int])(nil)

func (s *plain[T]) Open(ctx context.Context, sc sinks.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	if s.conn, err = s.connect(ctx, writer{Sink: sinkName(sc), Attempt: sc.Attempt, Subtask: sc.Subtask}); err != nil {
		return err
	}
	types, err := s.types(ctx, s.conn)
	if err != nil {
		return err
	}
	s.batch = batch{columns: s.columns, types: types, limit: s.settings.batch}
	return nil
}

func (s *plain[T]) Write(ctx context.Context, v T, _ int64) error {
	full, err := s.batch.add(s.bind(v))
	if err != nil || !full {
		return err
	}
	return s.Flush(ctx)
}

func (s *plain[T]) Flush(ctx context.Context) error {
	if s.batch.rows() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	err := within(ctx, s.conn, func() error {
		if len(s.keys) > 0 {
			return s.batch.upsert(ctx, s.conn, upsertRow(s.table, s.columns, s.keys))
		}
		return s.batch.copyTo(ctx, s.conn, s.table, s.columns, nil)
	})
	if err == nil {
		s.batch.clear()
	}
	return err
}

func (s *plain[T]) Close() error { return closeConn(s.conn) }

func upsertRow(table pgx.Identifier, columns, keys []string) string {
	places := make([]string, len(columns))
	for i := range places {
		places[i] = "$" + strconv.Itoa(i+1)
	}
	return "INSERT INTO " + table.Sanitize() + " (" + quoted(columns) + ") VALUES (" + strings.Join(places, ", ") + ")" + onConflict(columns, keys)
}
