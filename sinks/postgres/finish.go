package postgressink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// control ends transactions, on a connection of its own that is opened again after an error. Who waits for its turn waits no longer than its
// context and the sink's deadline.
type control struct {
	settings *settings
	server   *server
	writer   writer

	// turn is full while somebody uses conn.
	turn chan struct{}
	conn *pgx.Conn

	mu      sync.Mutex
	closing bool
	cancel  context.CancelFunc // of who has the turn
}

func (c *control) init(s *settings, m *server, w writer) {
	c.settings, c.server, c.writer = s, m, w
	c.turn = make(chan struct{}, 1)
}

// with runs do with a connection and the sink's deadline.
func (c *control) with(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.deadline)
	defer cancel()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait for other work on the bookkeeping of the PostgreSQL sink: %w", ctx.Err())
	}
	if !c.begin(cancel) {
		return errClosed
	}
	if c.conn == nil || c.conn.IsClosed() {
		conn, err := c.settings.connect(ctx, c.writer)
		if err != nil {
			return err
		}
		c.conn = conn
	}
	err := do(ctx, c.conn)
	if err != nil && c.conn.PgConn().TxStatus() != 'I' {
		err = errors.Join(err, closeConn(c.conn))
	}
	return err
}

// begin lets close cut off what goes on; false once it has been called.
func (c *control) begin(cancel context.CancelFunc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel = cancel
	return !c.closing
}

// close cuts off what goes on and lets nothing begin any more.
func (c *control) close() error {
	if c.turn == nil {
		return nil // never opened
	}
	c.mu.Lock()
	c.closing = true
	if c.cancel != nil {
		c.cancel()
	}
	c.mu.Unlock()
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return closeConn(c.conn)
}

// closeTimeout bounds the farewell to the server.
const closeTimeout = time.Second

func closeConn(conn *pgx.Conn) error {
	if conn == nil || conn.IsClosed() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return conn.Close(ctx)
}

// prove writes the row that tells for ever that the transaction it is part of was committed.
func (p *prepared) prove(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, "INSERT INTO "+in(p.Schema, committedTable)+" (sink, attempt, subtask, sequence, rows) VALUES ($1, $2, $3, $4, $5)",
		p.Sink, p.Attempt, p.Subtask, p.Sequence, p.Rows)
	return explain(err)
}

// proof is what the bookkeeping tells of a transaction; gone means that there is none any more.
type proof struct{ committed, fenced, gone bool }

func (p *prepared) proof(ctx context.Context, conn *pgx.Conn) (f proof, err error) {
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+in(p.Schema, committedTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND sequence = $4)"+
		" OR EXISTS (SELECT FROM "+in(p.Schema, writersTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND settled_through >= $4),"+
		" EXISTS (SELECT FROM "+in(p.Schema, writersTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND fenced)",
		p.Sink, p.Attempt, p.Subtask, p.Sequence).Scan(&f.committed, &f.fenced)
	if hasState(err, stateUndefinedTable) {
		return proof{gone: true}, nil
	}
	return f, explain(err)
}

// finish makes a transaction visible, once, however often it is asked to.
func (c *control) finish(ctx context.Context, p *prepared) error {
	if p.Database != c.server.database || p.Server != "" && c.server.id != "" && p.Server != c.server.id {
		return operator.Fatal(fmt.Errorf("transaction %s is in the database %s of the server with system identifier %s, and the sink's URL leads to %s of %s: "+
			"let it lead to the former until the transaction is committed", p.gid(p.Sequence), p.Database, p.Server, c.server.database, c.server.id))
	}
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if p.Staging != nil {
			return c.move(ctx, conn, p)
		}
		_, err := conn.Exec(ctx, "COMMIT PREPARED "+literal(p.gid(p.Sequence)))
		if !hasState(err, stateUndefinedObject) {
			return explain(err)
		}
		// Committed before, or rolled back: the row that was part of it tells.
		f, err := p.proof(ctx, conn)
		if err != nil || f.committed {
			return err
		}
		return c.missing(p, f, "somebody has rolled the prepared transaction back, or the server has been restored to an earlier state")
	})
}

// missing is the error for a transaction that is proven not to be there.
func (c *control) missing(p *prepared, f proof, how string) error {
	if f.fenced && p.writer == c.writer {
		return errFenced
	}
	if f.gone {
		how = "it is not prepared, and the tables of bookkeeping that would tell whether it was committed are gone"
	}
	return &sinks.LostError{
		Unknown: f.gone, Transaction: p.gid(p.Sequence), Payload: p.payload, Parts: []sinks.Part{{Place: strings.Join(p.Table, "."), Records: p.Rows, Detail: "in database " + p.Database}},
		Detail: how,
	}
}

// move takes staged rows to their table, in one transaction with the proof that they have been.
func (c *control) move(ctx context.Context, conn *pgx.Conn, p *prepared) error {
	return within(ctx, conn, func() error {
		f, err := p.proof(ctx, conn)
		if err != nil || f.committed {
			return err
		}
		tag, err := conn.Exec(ctx, "INSERT INTO "+in(p.Schema, committedTable)+" (sink, attempt, subtask, sequence, rows) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
			p.Sink, p.Attempt, p.Subtask, p.Sequence, p.Rows)
		if err != nil {
			return explain(err)
		}
		if tag.RowsAffected() == 0 {
			return nil // another process was quicker, and is through: the insert has waited for it
		}
		staged := in(p.Schema, p.Staging.Table)
		const which = " WHERE weir_sink = $1 AND weir_attempt = $2 AND weir_subtask = $3 AND weir_sequence = $4"
		key := []any{p.Sink, p.Attempt, p.Subtask, p.Sequence}
		if _, err := conn.Exec(ctx, p.insert("SELECT "+p.Staging.distinct()+quoted(p.Staging.Columns)+" FROM "+staged+which+p.Staging.order()), key...); err != nil {
			return fmt.Errorf("move %d staged rows to table %s (they stay staged until they can be moved): %w", p.Rows, strings.Join(p.Table, "."), explain(err))
		}
		if tag, err = conn.Exec(ctx, "DELETE FROM "+staged+which, key...); err != nil {
			return explain(err)
		}
		if tag.RowsAffected() != p.Rows {
			return c.missing(p, f, fmt.Sprintf("the staging table %s has %d of them", staged, tag.RowsAffected()))
		}
		return nil
	})
}

// distinct and order make the last row of each key the only one, and let transactions that touch the same keys do so in the same order.
func (s *staging) distinct() string {
	if len(s.Keys) == 0 {
		return ""
	}
	return "DISTINCT ON (" + quoted(s.Keys) + ") "
}

func (s *staging) order() string {
	if len(s.Keys) == 0 {
		return " ORDER BY weir_row"
	}
	return " ORDER BY " + quoted(s.Keys) + ", weir_row DESC"
}

func (p *prepared) insert(source string) string {
	return "INSERT INTO " + pgx.Identifier(p.Table).Sanitize() + " (" + quoted(p.Staging.Columns) + ") " + source + onConflict(p.Staging.Columns, p.Staging.Keys)
}

// settle notes that every transaction of the writer up to a sequence is committed.
func (c *control) settle(ctx context.Context, through uint64) error {
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return c.settings.settle(ctx, conn, c.writer, through)
	})
}

func (s *settings) settle(ctx context.Context, conn *pgx.Conn, w writer, through uint64) error {
	_, err := conn.Exec(ctx, "WITH gone AS (DELETE FROM "+in(s.schema, committedTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND sequence <= $4) "+
		"UPDATE "+in(s.schema, writersTable)+" SET settled_through = $4 WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND settled_through < $4",
		w.Sink, w.Attempt, w.Subtask, through)
	return explain(err)
}
