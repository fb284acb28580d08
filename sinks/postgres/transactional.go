package postgressink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// transactional is the exactly-once sink of one subtask.
type transactional[T any] struct {
	settings
	bind   func(T) []any
	writer writer
	server *server
	mode   Mode // Prepared or Staged
	logger *slog.Logger
	// conn writes; control commits and fences.
	conn    *pgx.Conn
	control control
	batch   batch
	last    uint64 // sequence of the newest transaction

	mu sync.Mutex
	// unsettled are the sequences that were prepared and that a snapshot may list, ascending; newest is the newest one prepared.
	unsettled []uint64
	newest    uint64
}

// txn is an open transaction. Nothing has reached the server before the first batch is full.
type txn struct {
	sequence uint64
	begun    bool
	rows     int64
}

var (
	_ sinks.TwoPhaseCommitSink[int, *txn] = (*transactional[int])(nil)
	_ sinks.Releaser                      = (*transactional[int])(nil)
)

// Open looks at server and table, makes what is missing of the bookkeeping, and registers the writer. Who only settles writes nothing.
func (s *transactional[T]) Open(ctx context.Context, sc sinks.Context) (err error) {
	s.logger = sc.Logger
	s.writer = writer{Sink: sinkName(sc), Attempt: sc.Attempt, Subtask: sc.Subtask}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	if s.conn, err = s.connect(ctx, s.writer); err != nil {
		return err
	}
	if s.server, err = meet(ctx, s.conn); err != nil {
		return err
	}
	s.control.init(&s.settings, s.server, s.writer)
	if sc.SettleOnly {
		return nil // the table may be gone or another one, and nothing will be written to it
	}
	if s.server.types, err = s.types(ctx, s.conn); err != nil {
		return err
	}
	s.batch = batch{columns: s.columns, types: s.server.types, limit: s.settings.batch}
	if err := s.ensure(ctx, s.conn, s.bookkeeping()); err != nil {
		return err
	}
	if err := s.choose(need(sc.Checkpoints, sc.Parallelism)); err != nil {
		return err
	}
	if s.mode == Staged {
		if err := errors.Join(s.ensure(ctx, s.conn, s.stagingTable()), s.fits(ctx, s.conn, s.server)); err != nil {
			return err
		}
	}
	return within(ctx, s.conn, func() error {
		_, err := s.conn.Exec(ctx, "INSERT INTO "+in(s.schema, writersTable)+" (sink, attempt, subtask) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
			s.writer.Sink, s.writer.Attempt, s.writer.Subtask)
		return explain(err)
	})
}

// choose settles the mode by what the server has room for.
func (s *transactional[T]) choose(need int) error {
	room := s.server.maxPrepared >= need
	switch s.settings.mode {
	case Staged:
		s.mode = Staged
	case Prepared:
		if !room {
			return operator.Fatal(fmt.Errorf("the server allows %d prepared transactions at a time, max_prepared_transactions; this sink may need %d, and every other one its own: "+
				"raise the setting, which takes a restart of the server, or use the mode Staged", s.server.maxPrepared, need))
		}
		s.mode = Prepared
	default:
		if s.mode = Prepared; !room || len(s.keys) > 0 {
			s.mode = Staged
		}
		s.logger.Info("mode of the PostgreSQL sink chosen", "mode", s.mode.String(), "max_prepared_transactions", s.server.maxPrepared, "needed", need, "upsert", len(s.keys) > 0)
	}
	return nil
}

// Begin sends nothing: the transaction begins on the server with the first full batch, at the barrier at the latest, so that one that
// waits for records holds nothing there.
func (s *transactional[T]) Begin(context.Context) (*txn, error) {
	s.last++
	return &txn{sequence: s.last}, nil
}

func (s *transactional[T]) Write(ctx context.Context, t *txn, v T, _ int64) error {
	full, err := s.batch.add(s.bind(v))
	if err != nil || !full {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	return s.flush(ctx, t)
}

// flush sends the batch.
func (s *transactional[T]) flush(ctx context.Context, t *txn) error {
	if s.batch.rows() == 0 {
		return nil
	}
	if !t.begun {
		t.begun = true
		if err := s.begin(ctx); err != nil {
			return err
		}
	}
	var err error
	if s.mode == Prepared {
		err = s.batch.copyTo(ctx, s.conn, s.table, s.columns, nil)
	} else {
		err = s.stage(ctx, t)
	}
	if err != nil {
		return err
	}
	t.rows += int64(s.batch.rows())
	s.batch.clear()
	return nil
}

func (s *transactional[T]) stage(ctx context.Context, t *txn) error {
	before := []any{s.writer.Sink, int64(s.writer.Attempt), int32(s.writer.Subtask), int64(t.sequence), int64(0)}
	return s.batch.copyTo(ctx, s.conn, pgx.Identifier{s.schema, s.stagingName()}, append(slices.Clone(stagingColumns), s.columns...), func(i int) []any {
		before[4] = t.rows + int64(i)
		return before
	})
}

// begin starts a transaction and takes the lock that keeps a successor from taking the writer for gone.
func (s *transactional[T]) begin(ctx context.Context) error {
	if _, err := s.conn.Exec(ctx, begin); err != nil {
		return explain(err)
	}
	var fenced bool
	err := s.conn.QueryRow(ctx, "SELECT fenced FROM "+in(s.schema, writersTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 FOR KEY SHARE",
		s.writer.Sink, s.writer.Attempt, s.writer.Subtask).Scan(&fenced)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("the row of this writer has been deleted from %s", in(s.schema, writersTable))
	case err != nil:
		return explain(err)
	case fenced:
		return errFenced
	}
	return nil
}

// PreCommit makes the transaction durable: as a prepared one, or as rows in the staging table.
func (s *transactional[T]) PreCommit(ctx context.Context, t *txn) (sinks.Committable, error) {
	ctx, cancel := context.WithTimeout(ctx, s.deadline)
	defer cancel()
	if err := s.flush(ctx, t); err != nil {
		return sinks.Committable{}, err
	}
	p := prepared{
		writer: s.writer, Sequence: t.sequence, Rows: t.rows, Server: s.server.id, Database: s.server.database, Schema: s.schema, Table: s.table,
	}
	if s.mode == Staged {
		p.Staging = &staging{Table: s.stagingName(), Columns: s.columns, Keys: s.keys}
		if _, err := s.conn.Exec(ctx, "COMMIT"); err != nil {
			return sinks.Committable{}, fmt.Errorf("commit staged rows: %w", explain(err))
		}
	} else if err := s.prepare(ctx, &p); err != nil {
		return sinks.Committable{}, err
	}
	s.mu.Lock()
	s.newest = t.sequence
	s.unsettled = append(s.unsettled, t.sequence)
	s.mu.Unlock()
	return p.encode()
}

// prepare adds the proof to the transaction and makes it ready.
func (s *transactional[T]) prepare(ctx context.Context, p *prepared) error {
	if err := p.prove(ctx, s.conn); err != nil {
		return err
	}
	_, err := s.conn.Exec(ctx, "PREPARE TRANSACTION "+literal(p.gid(p.Sequence)))
	if hasState(err, stateNoMemory) {
		return fmt.Errorf("prepare transaction %s: the server has no room for another one, max_prepared_transactions = %d: %w", p.gid(p.Sequence), s.server.maxPrepared, explain(err))
	}
	if err != nil {
		return fmt.Errorf("prepare transaction %s: %w", p.gid(p.Sequence), explain(err))
	}
	return nil
}

// Commit makes a transaction of this writer visible.
func (s *transactional[T]) Commit(ctx context.Context, c sinks.Committable) error {
	p, err := decodeCommittable(c)
	if err != nil {
		return operator.Fatal(err)
	}
	return s.control.finish(ctx, p)
}

// RecoverCommit makes restored transactions visible. One that is lost does not keep the others from it.
func (s *transactional[T]) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	var losses []error
	for _, c := range cs {
		err := s.Commit(ctx, c)
		if errors.Is(err, sinks.ErrLost) {
			losses = append(losses, err)
		} else if err != nil {
			return err
		}
	}
	return errors.Join(losses...)
}

// RecoverAbort ends what former attempts left and keeps their writers from doing more. One that cannot be ended yet does not keep the
// others from it.
func (s *transactional[T]) RecoverAbort(ctx context.Context, scope operator.Scope) error {
	var errs []error
	for _, a := range scope.Attempts {
		for subtask := scope.Subtask; subtask < a.Parallelism; subtask += scope.Parallelism {
			err := s.control.fence(ctx, writer{Sink: s.writer.Sink, Attempt: a.Attempt, Subtask: subtask}, !scope.Again)
			if err != nil && !errors.Is(err, errStillOpen) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Release lets the proofs go that nothing will ask for: where every transaction up to one is committed, that one number proves it.
func (s *transactional[T]) Release(c sinks.Committable) {
	p, err := decodeCommittable(c)
	if err != nil || p.writer != s.writer {
		return
	}
	s.mu.Lock()
	s.unsettled = slices.DeleteFunc(s.unsettled, func(n uint64) bool { return n == p.Sequence })
	through := s.newest
	if len(s.unsettled) > 0 {
		through = s.unsettled[0] - 1
	}
	s.mu.Unlock()
	if err := s.control.settle(context.Background(), through); err != nil {
		s.logger.Warn("cannot clear bookkeeping of committed transactions; the next commit tries again", "error", err)
	}
}

func (s *transactional[T]) Abort(ctx context.Context, t *txn) error {
	s.batch.clear()
	if !t.begun {
		return nil
	}
	_, err := s.conn.Exec(ctx, "ROLLBACK")
	return explain(err)
}

func (s *transactional[T]) Close() error { return errors.Join(closeConn(s.conn), s.control.close()) }
