package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRightSinkPasses(t *testing.T) {
	Run(t, func(*testing.T) Output { return newSystem("").output() })
}

// Each way to write a sink wrong breaks the rule that is there for it.
func TestWrongSinksFail(t *testing.T) {
	for fault, name := range map[string]string{
		"visible when prepared":                            "visible only after the commit",
		"the last record is not flushed":                   "visible only after the commit",
		"order is turned round":                            "many checkpoints keep the order",
		"a repeated commit writes again":                   "a committed transaction may be restored again",
		"a repeated commit fails":                          "a committed transaction may be restored again",
		"a commit takes what is open under the name":       "what was prepared later than the restore is ended",
		"only the process that wrote can commit":           "another process commits a restored transaction",
		"restored transactions are not committed":          "another process commits a restored transaction",
		"a restore commits everything prepared":            "what was prepared later than the restore is ended",
		"nothing is fenced":                                "what was not prepared is never visible",
		"open transactions are fenced, prepared ones not":  "what was prepared later than the restore is ended",
		"a fenced writer may go on for ever":               "nor can one that wakes between two transactions",
		"names without the attempt":                        "a writer of a former attempt cannot disturb",
		"names without the job":                            "two jobs may start from one savepoint",
		"names without the sink":                           "other sinks of the job are left alone",
		"names without the subtask":                        "fewer subtasks end what former ones left",
		"fencing takes other jobs":                         "other jobs are left alone",
		"fencing takes other sinks":                        "other sinks of the job are left alone",
		"fencing goes by today's parallelism":              "fewer subtasks end what former ones left",
		"close aborts what is prepared":                    "close ends the current transaction only",
		"close leaves the current transaction":             "an orderly close leaves nothing open",
		"proofs are forgotten":                             "a savepoint may list what was committed long ago",
		"an abort by hand takes what is committed":         "transactions can be looked at and ended by hand",
		"every subtask shows the share of all":             "transactions can be looked at and ended by hand",
		"a commit by hand does not say that it was needed": "transactions can be looked at and ended by hand",
		"flush does nothing":                               "without transactions a flush makes records visible",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
			require.GreaterOrEqual(t, i, 0, "no rule %q", name)
			v := &verdict{TB: t}
			v.judge(func() { rules[i].check(v, newSystem(fault).output(), 2*time.Second) })
			require.True(t, v.failed, "the rule %q does not find it", name)
			require.False(t, v.skipped)
		})
	}
}

// verdict is a test whose failure is no failure of the test around it.
type verdict struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	skipped  bool
	cleanups []func()
}

func (v *verdict) judge(test func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	for _, f := range slices.Backward(v.cleanups) {
		f()
	}
}

func (v *verdict) fail() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failed = true
}

func (v *verdict) Helper()                  {}
func (v *verdict) Cleanup(f func())         { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Logf(string, ...any)      {}
func (v *verdict) Errorf(string, ...any)    { v.fail() }
func (v *verdict) Fatalf(string, ...any)    { v.FailNow() }
func (v *verdict) Skip(...any)              { v.SkipNow() }
func (v *verdict) Skipf(string, ...any)     { v.SkipNow() }
func (v *verdict) FailNow()                 { v.fail(); runtime.Goexit() }
func (v *verdict) SkipNow()                 { v.skipped = true; runtime.Goexit() }
func (v *verdict) Context() context.Context { return v.TB.Context() }

// system is a transactional system in memory, with one fault that its sink has.
type system struct {
	fault string

	mu      sync.Mutex
	txns    map[string]*memory
	fenced  map[string]bool // by writer
	order   []string        // ids, as they were begun
	visible []int
}

type memory struct {
	writer string
	sub    int
	att    uint64
	owner  string // job and sink
	job    string
	state  sinks.TransactionState
	rows   []int
	gone   bool // let go of
}

func newSystem(fault string) *system {
	return &system{fault: fault, txns: map[string]*memory{}, fenced: map[string]bool{}}
}

func (s *system) output() Output {
	return Output{
		Sink: func() sinks.Sink[int] {
			return sinks.TwoPhase(sinks.TwoPhaseConfig[int, string]{
				Kind: "memory", RetryLimit: 100 * time.Millisecond,
				New:       func() (sinks.TwoPhaseCommitSink[int, string], error) { return &memorySink{system: s}, nil },
				NewWriter: func() (sinks.Writer[int], error) { return &memoryWriter{system: s}, nil },
			})
		},
		Read: func(context.Context) ([]int, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Clone(s.visible), nil
		},
		Settled: func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for id, m := range s.txns {
				if m.state == sinks.TransactionOpen || m.state == sinks.TransactionPrepared {
					return fmt.Errorf("transaction %s is left", id)
				}
			}
			return nil
		},
	}
}

type memorySink struct {
	*system
	sc   sinks.Context
	next int
	mine map[string]bool
}

var (
	_ sinks.Inspector = (*memorySink)(nil)
	_ sinks.Releaser  = (*memorySink)(nil)
)

// name names a writer.
func (m *memorySink) name(attempt uint64, subtask int) string {
	parts := []string{m.sc.JobID, m.sc.UID, fmt.Sprint(attempt), fmt.Sprint(subtask)}
	for i, fault := range []string{"names without the job", "names without the sink", "names without the attempt", "names without the subtask"} {
		if m.fault == fault {
			parts[i] = ""
		}
	}
	return strings.Join(parts, "/")
}

func (m *memorySink) Open(_ context.Context, sc sinks.Context) error {
	m.sc, m.mine = sc, map[string]bool{}
	return nil
}

func (m *memorySink) Begin(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.name(m.sc.Attempt, m.sc.Subtask)
	if m.fenced[w] && m.fault != "a fenced writer may go on for ever" && m.fault != "names without the attempt" {
		return "", errors.New("fenced")
	}
	m.next++
	id := fmt.Sprintf("%s/%d", w, m.next)
	m.mine[id] = true
	m.txns[id] = &memory{writer: w, sub: m.sc.Subtask, att: m.sc.Attempt, owner: m.sc.JobID + "/" + m.sc.UID, job: m.sc.JobID, state: sinks.TransactionOpen}
	m.order = append(m.order, id)
	return id, nil
}

func (m *memorySink) Write(_ context.Context, id string, v int, _ int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.txns[id]
	if t.state != sinks.TransactionOpen {
		return errors.New("not open")
	}
	t.rows = append(t.rows, v)
	return nil
}

func (m *memorySink) PreCommit(_ context.Context, id string) (sinks.Committable, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.txns[id]
	if t.state != sinks.TransactionOpen {
		return sinks.Committable{}, errors.New("not open")
	}
	t.state = sinks.TransactionPrepared
	switch m.fault {
	case "the last record is not flushed":
		t.rows = t.rows[:len(t.rows)-1]
	case "visible when prepared":
		m.show(t)
	}
	payload, err := json.Marshal(id)
	return sinks.Committable{Version: 1, Payload: payload}, err
}

func (s *system) show(t *memory) {
	t.state = sinks.TransactionCommitted
	rows := slices.Clone(t.rows)
	if s.fault == "order is turned round" {
		slices.Reverse(rows)
	}
	s.visible = append(s.visible, rows...)
}

func idOf(c sinks.Committable) (id string) {
	_ = json.Unmarshal(c.Payload, &id)
	return id
}

func (m *memorySink) Commit(_ context.Context, c sinks.Committable) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := idOf(c)
	t := m.txns[id]
	if m.fault == "only the process that wrote can commit" && !m.mine[id] {
		return errors.New("not mine")
	}
	if m.fault == "a commit takes what is open under the name" {
		for _, other := range m.order {
			if m.txns[other].writer == t.writer && m.txns[other].state == sinks.TransactionPrepared {
				m.show(m.txns[other])
			}
		}
		return nil
	}
	switch {
	case t.gone:
		return &sinks.LostError{Transaction: id, Detail: "unknown"}
	case t.state == sinks.TransactionPrepared:
		m.show(t)
	case t.state == sinks.TransactionCommitted && m.fault == "a repeated commit writes again":
		m.show(t)
	case t.state == sinks.TransactionCommitted && m.fault == "a repeated commit fails":
		return errors.New("no such transaction")
	case t.state != sinks.TransactionCommitted:
		return &sinks.LostError{Transaction: id, Detail: "aborted"}
	}
	return nil
}

func (m *memorySink) Release(c sinks.Committable) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.txns[idOf(c)].gone = m.fault == "proofs are forgotten"
}

func (m *memorySink) Abort(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != "close leaves the current transaction" && m.txns[id].state == sinks.TransactionOpen {
		m.txns[id].state = sinks.TransactionAborted
	}
	return nil
}

func (m *memorySink) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	switch m.fault {
	case "restored transactions are not committed":
		return nil
	case "a restore commits everything prepared":
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, id := range m.order {
			if t := m.txns[id]; t.job == m.sc.JobID && t.state == sinks.TransactionPrepared {
				m.show(t)
			}
		}
		return nil
	}
	for _, c := range cs {
		if err := m.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (m *memorySink) RecoverAbort(_ context.Context, scope operator.Scope) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == "nothing is fenced" || scope.Again && m.fault == "a fenced writer may go on for ever" {
		return nil
	}
	for _, a := range scope.Attempts {
		subtasks := a.Parallelism
		if m.fault == "fencing goes by today's parallelism" {
			subtasks = scope.Parallelism
		}
		for subtask := scope.Subtask; subtask < subtasks; subtask += scope.Parallelism {
			m.fence(a.Attempt, subtask)
		}
	}
	return nil
}

func (m *memorySink) fence(attempt uint64, subtask int) {
	w := m.name(attempt, subtask)
	m.fenced[w] = true
	for _, t := range m.txns {
		wrong := m.fault == "fencing takes other jobs" && t.job != m.sc.JobID ||
			m.fault == "fencing takes other sinks" && t.job == m.sc.JobID && t.att == attempt
		if t.writer != w && !wrong {
			continue
		}
		if t.state == sinks.TransactionOpen || t.state == sinks.TransactionPrepared && m.fault != "open transactions are fenced, prepared ones not" {
			t.state = sinks.TransactionAborted
		}
	}
}

func (m *memorySink) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.mine {
		if t := m.txns[id]; m.fault == "close aborts what is prepared" && t.state == sinks.TransactionPrepared {
			t.state = sinks.TransactionAborted
		}
	}
	return nil
}

func (m *memorySink) Inspect(_ context.Context, pending []sinks.Committable, scope operator.Scope) (in sinks.Inspection, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	show := func(id string) sinks.Transaction {
		t := m.txns[id]
		return sinks.Transaction{ID: id, Attempt: t.att, Subtask: t.sub, State: t.state, Age: -1, Left: -1}
	}
	for _, c := range pending {
		in.Pending = append(in.Pending, show(idOf(c)))
	}
	for _, a := range scope.Attempts {
		for id, t := range m.txns {
			known := slices.ContainsFunc(pending, func(c sinks.Committable) bool { return idOf(c) == id })
			mine := t.sub < a.Parallelism && t.sub%scope.Parallelism == scope.Subtask || m.fault == "every subtask shows the share of all"
			if mine && t.writer == m.name(a.Attempt, t.sub) && t.state <= sinks.TransactionPrepared && !known {
				in.Others = append(in.Others, show(id))
			}
		}
	}
	return in, nil
}

func (m *memorySink) Resolve(_ context.Context, id string, _ sinks.Committable, commit bool) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.txns[id]
	switch {
	case t == nil:
		return false, sinks.ErrNotFound
	case t.state == sinks.TransactionCommitted && !commit:
		if m.fault == "an abort by hand takes what is committed" {
			return false, nil
		}
		return false, sinks.ErrCommitted
	case t.state == sinks.TransactionCommitted:
		return m.fault != "a commit by hand does not say that it was needed", nil
	case commit:
		m.show(t)
	default:
		t.state = sinks.TransactionAborted
	}
	return false, nil
}

type memoryWriter struct {
	*system
	buffer []int
}

func (w *memoryWriter) Open(context.Context, sinks.Context) error { return nil }

func (w *memoryWriter) Write(_ context.Context, v int, _ int64) error {
	w.buffer = append(w.buffer, v)
	return nil
}

func (w *memoryWriter) Flush(context.Context) error {
	if w.fault == "flush does nothing" {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visible = append(w.visible, w.buffer...)
	w.buffer = nil
	return nil
}

func (w *memoryWriter) Close() error { return nil }
