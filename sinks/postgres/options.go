package postgressink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/sources"
)

// Mode is how exactly-once is done.
type Mode int

// The modes.
const (
	// Automatic takes Prepared where the server has room for the prepared transactions of every subtask and the sink inserts, else
	// Staged. It is the default.
	Automatic Mode = iota
	// Prepared uses PREPARE TRANSACTION, which max_prepared_transactions of the server must allow.
	Prepared
	// Staged writes to a staging table first. Rows are written twice; the table itself is locked for short moments only.
	Staged
)

// String names the mode.
func (m Mode) String() string {
	return [...]string{"automatic", "prepared", "staged"}[m]
}

// Option sets one thing about the sink.
type Option func(*settings)

type settings struct {
	url       string
	password  *string
	table     pgx.Identifier
	columns   []string
	keys      []string
	guarantee graph.Guarantee
	mode      Mode
	schema    string
	batch     int
	deadline  time.Duration
}

const (
	defaultSchema   = "weir"
	defaultBatch    = 1000
	defaultDeadline = 30 * time.Second
)

func newSettings(url, table string, columns []string, opts []Option) settings {
	s := settings{
		url: url, table: strings.SplitN(table, ".", 2), columns: slices.Clone(columns),
		schema: defaultSchema, batch: defaultBatch, deadline: defaultDeadline,
	}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// Guarantee asks for a delivery guarantee; by default the job's holds.
func Guarantee(g graph.Guarantee) Option { return func(s *settings) { s.guarantee = g } }

// Password is the user's password, when it is not in the URL. Give it to the job as a reference such as ${file:PATH} or ${env:NAME}.
func Password(p string) Option { return func(s *settings) { s.password = &p } }

// Upsert makes a row replace the one that agrees with it in the key columns, on which the table must have a unique index. Of several
// records with one key the last counts. The default inserts, and a row that is there already fails the job.
func Upsert(keys ...string) Option { return func(s *settings) { s.keys = slices.Clone(keys) } }

// Using chooses the mode of exactly-once; default Automatic.
func Using(m Mode) Option { return func(s *settings) { s.mode = m } }

// Bookkeeping names the schema of the sink's own tables; default "weir". They are made when the user may, else the error has the
// statements for an administrator.
func Bookkeeping(schema string) Option { return func(s *settings) { s.schema = schema } }

// BatchRows is how many rows are sent at once; default 1000.
func BatchRows(n int) Option { return func(s *settings) { s.batch = n } }

// Deadline bounds every wait for the server; default 30 s.
func Deadline(d time.Duration) Option { return func(s *settings) { s.deadline = d } }

// validate checks everything that needs no server.
func (s *settings) validate(sources.JobSettings) error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	// A reference such as ${env:PASSWORD} is resolved only where the job runs.
	if s.url == "" {
		bad("no server given: name one as postgres://user@host:5432/database")
	} else if !strings.Contains(s.url, "${") {
		if _, err := s.config(""); err != nil {
			bad("%w", err)
		}
	}
	if slices.Contains(s.table, "") {
		bad("no table given: name one as table or schema.table")
	}
	if len(s.columns) == 0 {
		bad("no columns given: name those that the bind function has values for, in its order")
	}
	for i, c := range s.columns {
		if c == "" || slices.Contains(s.columns[:i], c) {
			bad("column %q is empty or given twice", c)
		}
	}
	for _, k := range s.keys {
		if !slices.Contains(s.columns, k) {
			bad("Upsert by %q, which is not among the columns", k)
		}
	}
	if len(s.keys) > 0 && s.mode == Prepared {
		bad("Upsert does not go with Prepared: a prepared transaction keeps its rows locked until its checkpoint is completed, and whoever writes the same key next " +
			"waits for it; use Staged, or leave the choice to the sink")
	}
	if s.mode < Automatic || s.mode > Staged {
		bad("unknown mode %d", int(s.mode))
	}
	if s.schema == "" {
		bad("Bookkeeping needs the name of a schema")
	}
	if s.batch < 1 {
		bad("BatchRows must be positive")
	}
	if s.deadline <= 0 {
		bad("Deadline must be positive")
	}
	return errors.Join(problems...)
}

// config returns how to connect.
func (s *settings) config(application string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(s.url)
	if err != nil {
		return nil, fmt.Errorf("address of the PostgreSQL server: %w", err)
	}
	if s.password != nil {
		cfg.Password = *s.password
	}
	cfg.ConnectTimeout = s.deadline
	cfg.RuntimeParams["application_name"] = application
	return cfg, nil
}

// target names the server for people.
func (s *settings) target() string {
	if cfg, err := s.config(""); err == nil {
		return fmt.Sprintf("PostgreSQL at %s:%d/%s", cfg.Host, cfg.Port, cfg.Database)
	}
	return "PostgreSQL"
}

// need is how many prepared transactions a sink may have at a time: of each subtask one for each checkpoint that may fail, the one that
// completes and the one that is prepared meanwhile.
func need(c graph.CheckpointConfig, parallelism int) int {
	return parallelism * (c.ToleratedFailures + 2)
}
