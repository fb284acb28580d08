package postgressink

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

var _ sinks.Inspector = (*transactional[int])(nil)

// Inspect implements sinks.Inspector.
func (s *transactional[T]) Inspect(ctx context.Context, pending []sinks.Committable, scope operator.Scope) (in sinks.Inspection, err error) {
	err = s.control.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		known := map[string]bool{}
		for _, c := range pending {
			p, err := decodeCommittable(c)
			if err != nil {
				return err
			}
			t, err := p.look(ctx, conn)
			if err != nil {
				return err
			}
			known[t.ID] = true
			in.Pending = append(in.Pending, t)
		}
		writers := []writer{s.writer}
		for _, a := range scope.Attempts {
			for subtask := scope.Subtask; subtask < a.Parallelism; subtask += scope.Parallelism {
				writers = append(writers, writer{s.writer.Sink, a.Attempt, subtask})
			}
		}
		staged, err := exists(ctx, conn, s.stagingTableName())
		if err != nil {
			return err
		}
		for _, w := range writers {
			found, err := s.openOf(ctx, conn, w, staged)
			if err != nil {
				return err
			}
			for _, t := range found {
				if !known[t.ID] {
					in.Others = append(in.Others, t)
				}
			}
		}
		return nil
	})
	return in, err
}

// look finds out what became of a transaction.
func (p *prepared) look(ctx context.Context, conn *pgx.Conn) (sinks.Transaction, error) {
	t := describe(p.writer, p.Sequence, sinks.TransactionAborted)
	t.Parts = []sinks.Part{{Place: strings.Join(p.Table, "."), Records: p.Rows}}
	age, there, err := p.waiting(ctx, conn)
	if err != nil {
		return t, err
	}
	if there {
		t.State, t.Age = sinks.TransactionPrepared, age
		return t, nil
	}
	// Asked afterwards: a commit in between is seen here.
	f, err := p.proof(ctx, conn)
	switch {
	case f.committed:
		t.State = sinks.TransactionCommitted
	case f.gone:
		t.State = sinks.TransactionUnknown
	}
	return t, err
}

// waiting reports whether the transaction is prepared, or its rows are staged.
func (p *prepared) waiting(ctx context.Context, conn *pgx.Conn) (age time.Duration, there bool, err error) {
	var seconds float64
	if p.Staging != nil {
		err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+in(p.Schema, p.Staging.Table)+" WHERE weir_sink = $1 AND weir_attempt = $2 AND weir_subtask = $3 AND weir_sequence = $4)",
			p.Sink, p.Attempt, p.Subtask, p.Sequence).Scan(&there)
		return -1, there, explain(err)
	}
	err = conn.QueryRow(ctx, "SELECT count(*) > 0, coalesce(max(extract(epoch FROM clock_timestamp() - prepared)), 0)::float8 FROM pg_prepared_xacts "+
		"WHERE database = current_database() AND gid = $1", p.gid(p.Sequence)).Scan(&there, &seconds)
	return time.Duration(seconds * float64(time.Second)), there, explain(err)
}

func describe(w writer, sequence uint64, state sinks.TransactionState) sinks.Transaction {
	return sinks.Transaction{ID: w.gid(sequence), Attempt: w.Attempt, Subtask: w.Subtask, State: state, Age: -1, Left: -1}
}

// openOf lists what a writer has prepared or staged.
func (s *transactional[T]) openOf(ctx context.Context, conn *pgx.Conn, w writer, staged bool) ([]sinks.Transaction, error) {
	var out []sinks.Transaction
	gids, err := preparedBy(ctx, conn, w)
	if err != nil {
		return nil, err
	}
	part := sinks.Part{Place: strings.Join(s.table, "."), Records: -1}
	for _, gid := range gids {
		sequence, _ := w.sequence(gid)
		t := describe(w, sequence, sinks.TransactionPrepared)
		t.Parts = []sinks.Part{part}
		p := prepared{writer: w, Sequence: sequence}
		if t.Age, _, err = p.waiting(ctx, conn); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	if !staged {
		return out, nil
	}
	rows, err := conn.Query(ctx, "SELECT weir_sequence, count(*) FROM "+s.stagingTableName()+" WHERE weir_sink = $1 AND weir_attempt = $2 AND weir_subtask = $3 GROUP BY 1 ORDER BY 1",
		w.Sink, w.Attempt, w.Subtask)
	if err != nil {
		return nil, explain(err)
	}
	var sequence uint64
	_, err = pgx.ForEachRow(rows, []any{&sequence, &part.Records}, func() error {
		t := describe(w, sequence, sinks.TransactionPrepared)
		t.Parts = []sinks.Part{part}
		out = append(out, t)
		return nil
	})
	return out, explain(err)
}

// Resolve implements sinks.Inspector.
func (s *transactional[T]) Resolve(ctx context.Context, id string, c sinks.Committable, commit bool) (already bool, err error) {
	p, err := s.named(id, c)
	if err != nil {
		return false, err
	}
	err = s.control.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, there, err := p.waiting(ctx, conn)
		if err == nil && !there && c.Payload == nil {
			there, err = s.stagedInstead(ctx, conn, p)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
		f, err := p.proof(ctx, conn)
		if err != nil {
			return fmt.Errorf("%w: %w", sinks.ErrRetriable, err)
		}
		switch {
		case f.committed && commit, !there && !f.committed && !f.gone && !commit && c.Payload != nil:
			already = true
			return nil
		case f.committed:
			return fmt.Errorf("transaction %s: %w", id, sinks.ErrCommitted)
		case !there && c.Payload == nil:
			return sinks.ErrNotFound
		case !there:
			return s.control.missing(p, f, "it was rolled back before")
		case !commit:
			return p.abort(ctx, conn)
		case p.Staging != nil && c.Payload == nil:
			return fmt.Errorf("%w: no checkpoint lists transaction %s, so nobody knows whether its rows are all staged", sinks.ErrUnknown, id)
		case p.Staging != nil:
			return s.control.move(ctx, conn, p)
		}
		_, err = conn.Exec(ctx, "COMMIT PREPARED "+literal(id))
		return explain(err)
	})
	return already, err
}

// stagedInstead looks for a transaction without a committable among the staged ones.
func (s *transactional[T]) stagedInstead(ctx context.Context, conn *pgx.Conn, p *prepared) (bool, error) {
	table, err := exists(ctx, conn, s.stagingTableName())
	if err != nil || !table {
		return false, err
	}
	q := *p
	q.Staging = &staging{Table: s.stagingName(), Columns: s.columns}
	_, there, err := q.waiting(ctx, conn)
	if there {
		p.Staging = q.Staging
	}
	return there, err
}

// named returns the transaction with an id, of which there may be no committable.
func (s *transactional[T]) named(id string, c sinks.Committable) (*prepared, error) {
	if c.Payload != nil {
		return decodeCommittable(c)
	}
	rest, ok := strings.CutPrefix(id, "weir."+s.writer.Sink+".")
	parts := strings.Split(rest, ".")
	if !ok || len(parts) != 3 {
		return nil, sinks.ErrNotFound
	}
	attempt, aerr := strconv.ParseUint(parts[0], 10, 64)
	subtask, serr := strconv.Atoi(parts[1])
	sequence, qerr := strconv.ParseUint(parts[2], 10, 64)
	if aerr != nil || serr != nil || qerr != nil {
		return nil, sinks.ErrNotFound
	}
	return &prepared{writer: writer{s.writer.Sink, attempt, subtask}, Sequence: sequence, Schema: s.schema, Table: s.table}, nil
}

// abort gives a transaction up that is prepared or staged.
func (p *prepared) abort(ctx context.Context, conn *pgx.Conn) error {
	if p.Staging == nil {
		_, err := conn.Exec(ctx, "ROLLBACK PREPARED "+literal(p.gid(p.Sequence)))
		return explain(err)
	}
	_, err := conn.Exec(ctx, "DELETE FROM "+in(p.Schema, p.Staging.Table)+" WHERE weir_sink = $1 AND weir_attempt = $2 AND weir_subtask = $3 AND weir_sequence = $4",
		p.Sink, p.Attempt, p.Subtask, p.Sequence)
	return explain(err)
}
