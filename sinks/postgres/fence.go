package postgressink

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// fencePause is how long a transaction of a former writer that is about to end is waited for.
const fencePause = 20 * time.Millisecond

// fence ends everything that a writer of a former attempt left open and lets it begin no more. When it returns nil, no transaction of the
// writer is left and none will be: whoever begins one takes a lock on the writer's row first and then sees it fenced. Without wait there is
// one pass, so that commits, which use the same connection, are not held up.
func (c *control) fence(ctx context.Context, w writer, wait bool) error {
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := c.mark(ctx, conn, w)
		if hasState(err, stateUndefinedTable) {
			// Nobody has written; with the tables, nobody will.
			if err = c.settings.ensure(ctx, conn, c.settings.bookkeeping()); err == nil {
				err = c.mark(ctx, conn, w)
			}
		}
		if err != nil {
			return err
		}
		for {
			if err := c.end(ctx, conn, w); err != nil {
				return fmt.Errorf("fence subtask %d of attempt %d: %w", w.Subtask, w.Attempt, err)
			}
			err := c.clear(ctx, conn, w)
			if !hasState(err, stateLockNotAvailable) {
				return err
			}
			if !wait {
				return stillOpen(w, err)
			}
			timer := time.NewTimer(fencePause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return stillOpen(w, err)
			case <-timer.C:
			}
		}
	})
}

func stillOpen(w writer, err error) error {
	return fmt.Errorf("subtask %d of attempt %d %w; end the sessions with application_name %q in pg_stat_activity, which this user may not: %w",
		w.Subtask, w.Attempt, errStillOpen, w.application(), err)
}

// mark lets a writer begin no more.
func (c *control) mark(ctx context.Context, conn *pgx.Conn, w writer) error {
	_, err := conn.Exec(ctx, "INSERT INTO "+in(c.settings.schema, writersTable)+" AS w (sink, attempt, subtask, fenced) VALUES ($1, $2, $3, true) "+
		"ON CONFLICT (sink, attempt, subtask) DO UPDATE SET fenced = true WHERE NOT w.fenced", w.Sink, w.Attempt, w.Subtask)
	return explain(err)
}

// end cuts the writer's connections and rolls its prepared transactions back.
func (c *control) end(ctx context.Context, conn *pgx.Conn, w writer) error {
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()",
		w.application())
	if err != nil && !hasState(err, stateNoRight) {
		return explain(err)
	}
	gids, err := preparedBy(ctx, conn, w)
	if err != nil {
		return err
	}
	for _, gid := range gids {
		if _, err := conn.Exec(ctx, "ROLLBACK PREPARED "+literal(gid)); err != nil && !hasState(err, stateUndefinedObject) {
			return fmt.Errorf("roll %s back: %w", gid, explain(err))
		}
	}
	return nil
}

// preparedBy lists the prepared transactions of a writer.
func preparedBy(ctx context.Context, conn *pgx.Conn, w writer) ([]string, error) {
	rows, err := conn.Query(ctx, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, $1)", w.prefix())
	if err != nil {
		return nil, explain(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, explain(err)
	}
	var own []string
	for _, gid := range all {
		if _, ok := w.sequence(gid); ok {
			own = append(own, gid)
		}
	}
	return own, nil
}

// clear removes staged rows that will never be moved, once no transaction of the writer is left, and lets one number take the place of
// its proofs. Without a gap it says the same.
func (c *control) clear(ctx context.Context, conn *pgx.Conn, w writer) error {
	staged := c.settings.stagingTableName()
	there, err := exists(ctx, conn, staged)
	if err != nil {
		return err
	}
	return within(ctx, conn, func() error {
		var settled, top, proofs uint64
		err := conn.QueryRow(ctx, "SELECT settled_through FROM "+in(c.settings.schema, writersTable)+" WHERE sink = $1 AND attempt = $2 AND subtask = $3 FOR UPDATE NOWAIT",
			w.Sink, w.Attempt, w.Subtask).Scan(&settled)
		if err != nil {
			return explain(err)
		}
		if there {
			_, err := conn.Exec(ctx, "DELETE FROM "+staged+" WHERE weir_sink = $1 AND weir_attempt = $2 AND weir_subtask = $3", w.Sink, w.Attempt, w.Subtask)
			if err != nil {
				return explain(err)
			}
		}
		err = conn.QueryRow(ctx, "SELECT coalesce(max(sequence), 0), count(*) FROM "+in(c.settings.schema, committedTable)+
			" WHERE sink = $1 AND attempt = $2 AND subtask = $3 AND sequence > $4", w.Sink, w.Attempt, w.Subtask, settled).Scan(&top, &proofs)
		if err != nil {
			return explain(err)
		}
		if proofs > 0 && top == settled+proofs {
			return c.settings.settle(ctx, conn, w, top)
		}
		return nil
	})
}
