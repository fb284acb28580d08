package postgressink

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weir-stream/weir/operator"
)

// batch holds rows that are not sent yet, one after the other in a slice that is used again.
type batch struct {
	columns []string
	types   []uint32
	limit   int // rows
	values  []any
}

func (b *batch) rows() int { return len(b.values) / len(b.columns) }

func (b *batch) row(i int) []any { return b.values[i*len(b.columns) : (i+1)*len(b.columns)] }

// add takes a row and reports whether the batch is full.
func (b *batch) add(row []any) (full bool, err error) {
	if len(row) != len(b.columns) {
		return false, operator.Fatal(fmt.Errorf("the bind function returned %d values for %d columns", len(row), len(b.columns)))
	}
	b.values = append(b.values, row...)
	return b.rows() >= b.limit, nil
}

// clear forgets the rows and what they refer to.
func (b *batch) clear() {
	clear(b.values)
	b.values = b.values[:0]
}

// copyTo sends the rows by COPY. before returns what stands before the values of row i, in the same slice each time; nil for nothing.
func (b *batch) copyTo(ctx context.Context, conn *pgx.Conn, table pgx.Identifier, columns []string, before func(i int) []any) error {
	buf := make([]any, 0, len(columns))
	n, err := conn.CopyFrom(ctx, table, columns, pgx.CopyFromSlice(b.rows(), func(i int) ([]any, error) {
		buf = buf[:0]
		if before != nil {
			buf = append(buf, before(i)...)
		}
		return append(buf, b.row(i)...), nil
	}))
	if err != nil {
		return b.explain(conn, err)
	}
	if n != int64(b.rows()) {
		return fmt.Errorf("the server took %d of %d rows", n, b.rows())
	}
	return nil
}

// explain names the row that an error is about, where that is known.
func (b *batch) explain(conn *pgx.Conn, err error) error {
	if hasState(err, stateCanceled) {
		// So the server answers when the client breaks the COPY off, as it does for a value that its column cannot take.
		for i := range b.rows() {
			for c, v := range b.row(i) {
				if _, eerr := conn.TypeMap().Encode(b.types[c], pgtype.BinaryFormatCode, v, nil); eerr != nil {
					return operator.Fatal(fmt.Errorf("row %s: column %s: %w", showRow(b.columns, b.row(i)), b.columns[c], eerr))
				}
			}
		}
	}
	if n := lineOf(err); n >= 1 && n <= b.rows() {
		return fmt.Errorf("row %s: %w", showRow(b.columns, b.row(n-1)), explain(err))
	}
	return explain(err)
}

// upsert sends the rows as statements.
func (b *batch) upsert(ctx context.Context, conn *pgx.Conn, statement string) error {
	var queue pgx.Batch
	for i := range b.rows() {
		queue.Queue(statement, b.row(i)...)
	}
	results := conn.SendBatch(ctx, &queue)
	var failed error
	for i := range b.rows() {
		if _, err := results.Exec(); err != nil {
			failed = fmt.Errorf("row %s: %w", showRow(b.columns, b.row(i)), explain(err))
			break
		}
	}
	if err := results.Close(); failed == nil && err != nil {
		failed = explain(err)
	}
	return failed
}
