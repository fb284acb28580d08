package postgressink

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-stream/weir/operator"
)

// errFenced is what a writer meets that a later attempt has taken the place of.
var errFenced = errors.New("a later attempt of the job has taken over")

// errStillOpen is for a former writer whose transaction could not be ended yet.
var errStillOpen = errors.New("still has a transaction open")

// errClosed is what work on a control meets that is being closed.
var errClosed = errors.New("the sink is being closed")

// The SQLSTATEs that are decided by more than their class.
const (
	stateUndefinedObject  = "42704"
	stateUndefinedTable   = "42P01"
	stateLockNotAvailable = "55P03"
	stateNoRight          = "42501"
	stateNoIndex          = "42P10" // none that an upsert could rest on
	stateNoMemory         = "53200" // among others: no room for another prepared transaction
	stateReadOnly         = "25006"
	stateCanceled         = "57014"
)

func hasState(err error, state string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == state
}

// blockers is the statement that shows which sessions others wait for.
const blockers = "SELECT pid, usename, state, query FROM pg_stat_activity WHERE pid IN (SELECT unnest(pg_blocking_pids(pid)) FROM pg_stat_activity)"

// told is an error in other words.
type told struct {
	text string
	err  error
}

func (t *told) Error() string { return t.text }
func (t *told) Unwrap() error { return t.err }

// explain gives an error of the server its detail and its class.
//
//	08, 40, 53, 55, 57, 58  passing trouble, among it serialization failures, deadlocks and a server that shuts down: restart
//	23 constraint, 22 data, 0A, 42  the same would happen again: fatal
//	28 login, 42501 right  refused: a restart may find it mended
func explain(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		if errors.Is(err, context.DeadlineExceeded) {
			return &told{"the server has not answered in time (" + err.Error() + "); a lock that somebody else holds does that, and this shows who: " + blockers, err}
		}
		return err
	}
	text := []string{e.Message}
	for _, more := range []string{e.Detail, e.Hint} {
		if more != "" {
			text = append(text, more)
		}
	}
	full := &told{fmt.Sprintf("%s (SQLSTATE %s)", strings.Join(text, "; "), e.Code), err}
	switch {
	case e.Code == stateNoRight, strings.HasPrefix(e.Code, "28"):
		return fmt.Errorf("%w: %w", operator.ErrRefused, full)
	case strings.HasPrefix(e.Code, "22"), strings.HasPrefix(e.Code, "23"), strings.HasPrefix(e.Code, "0A"), strings.HasPrefix(e.Code, "42"):
		return operator.Fatal(full)
	default:
		return full
	}
}

// line finds the row that COPY stumbled over, for example "COPY orders, line 12, column id", in whichever language.
var line = regexp.MustCompile(`^COPY .*, \D*(\d+)`)

// lineOf returns which row COPY stumbled over, counted from 1; 0 where that is not known.
func lineOf(err error) int {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return 0
	}
	for part := range strings.Lines(e.Where) {
		if m := line.FindStringSubmatch(part); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
	}
	return 0
}

// longestValue is how many bytes of a value are shown.
const longestValue = 60

func showRow(columns []string, row []any) string {
	var b strings.Builder
	for i, v := range row {
		if i > 0 {
			b.WriteString(", ")
		}
		text := fmt.Sprint(v)
		if len(text) > longestValue {
			text = strings.ToValidUTF8(text[:longestValue], "") + "…"
		}
		fmt.Fprintf(&b, "%s=%s", columns[i], text)
	}
	return "(" + b.String() + ")"
}

// quoted lists columns for a statement.
func quoted(columns []string) string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = pgx.Identifier{c}.Sanitize()
	}
	return strings.Join(out, ", ")
}
