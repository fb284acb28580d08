package sinks_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/statebackend"
)

// outcome is the state of a transaction at the model broker.
type outcome uint8

const (
	isOpen outcome = iota
	isCommitted
	isAborted
	isForgotten
)

// modelBroker is one partition of a log with transactions, of which any may be aborted at any time.
type modelBroker struct {
	txns []*modelTxn
	log  []modelRow
}

type modelTxn struct {
	attempt uint64
	state   outcome
	rows    int
}

type modelRow struct{ txn, value int }

// visible is what a reader sees: rows of committed transactions up to the first one that is open.
func (b *modelBroker) visible() (values []int) {
	for _, r := range b.log {
		switch b.txns[r.txn].state {
		case isOpen:
			return values
		case isCommitted:
			values = append(values, r.value)
		}
	}
	return values
}

func (b *modelBroker) open() (n int) {
	for _, t := range b.txns {
		if t.state == isOpen {
			n++
		}
	}
	return n
}

var errCrash = operator.Fatal(errors.New("the process is dead"))

// modelSink is the sink of one attempt. After fuse calls it is dead; whether the last call still had its effect, nobody knows.
type modelSink struct {
	b        *modelBroker
	attempt  uint64
	fuse     int
	half     bool // the last call has its effect
	journal  sinks.Journal
	released []string
}

var _ sinks.Rewriter[int] = (*modelSink)(nil)

// call runs effect unless the process is dead.
func (s *modelSink) call(effect func() error) error {
	s.fuse--
	switch {
	case s.fuse < 0:
		return errCrash
	case s.fuse == 0:
		if s.half {
			_ = effect()
		}
		return errCrash
	}
	return effect()
}

func (s *modelSink) Open(_ context.Context, sc sinks.Context) error {
	s.attempt = sc.Attempt
	return nil
}

func (s *modelSink) Keep(j sinks.Journal) { s.journal = j }

func (s *modelSink) Begin(context.Context) (int, error) {
	err := s.call(func() error {
		s.b.txns = append(s.b.txns, &modelTxn{attempt: s.attempt})
		return nil
	})
	return len(s.b.txns) - 1, err
}

func (s *modelSink) add(txn, value int) error {
	return s.call(func() error {
		if s.b.txns[txn].state != isOpen {
			return errors.New("the transaction is open no longer")
		}
		s.b.log = append(s.b.log, modelRow{txn, value})
		s.b.txns[txn].rows++
		return nil
	})
}

func (s *modelSink) Write(_ context.Context, txn, value int, _ int64) error {
	if s.journal != nil {
		if err := s.journal.Append(binary.AppendVarint(nil, int64(value))); err != nil {
			return err
		}
	}
	return s.add(txn, value)
}

func (s *modelSink) Rewrite(_ context.Context, txn int, record []byte) error {
	v, _ := binary.Varint(record)
	return s.add(txn, int(v))
}

func (s *modelSink) PreCommit(_ context.Context, txn int) (sinks.Committable, error) {
	return sinks.Committable{Version: 1, Payload: binary.AppendVarint(nil, int64(txn))}, s.call(func() error {
		if s.b.txns[txn].state != isOpen {
			return errors.New("the transaction is open no longer")
		}
		return nil
	})
}

func txnOf(c sinks.Committable) int {
	v, _ := binary.Varint(c.Payload)
	return int(v)
}

func (s *modelSink) Commit(_ context.Context, c sinks.Committable) error {
	return s.call(func() error {
		t := s.b.txns[txnOf(c)]
		lost := &sinks.LostError{Transaction: fmt.Sprint(txnOf(c)), Parts: []sinks.Part{{Place: "log", Records: int64(t.rows)}}}
		switch t.state {
		case isAborted:
			lost.Aborted = true
			return lost
		case isForgotten:
			lost.Unknown = true
			return lost
		}
		t.state = isCommitted
		return nil
	})
}

func (s *modelSink) Revoke(_ context.Context, c sinks.Committable) error {
	return s.call(func() error {
		t := s.b.txns[txnOf(c)]
		switch t.state {
		case isCommitted:
			return sinks.ErrPublished
		case isForgotten:
			return &sinks.LostError{Transaction: fmt.Sprint(txnOf(c)), Unknown: true}
		}
		t.state = isAborted
		return nil
	})
}

func (s *modelSink) Abort(_ context.Context, txn int) error {
	return s.call(func() error {
		s.b.txns[txn].state = isAborted
		return nil
	})
}

func (s *modelSink) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	for _, c := range cs {
		if err := s.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (s *modelSink) RecoverAbort(_ context.Context, scope operator.Scope) error {
	return s.call(func() error {
		for _, a := range scope.Attempts {
			for _, t := range s.b.txns {
				if t.attempt == a.Attempt && t.state == isOpen {
					t.state = isAborted
				}
			}
		}
		return nil
	})
}

func (s *modelSink) Release(c sinks.Committable) { s.released = append(s.released, string(c.Payload)) }
func (s *modelSink) Close() error                { return nil }

// memoryStore is checkpoint storage in a directory.
type memoryStore struct {
	dir     string
	broken  error // of uploads
	uploads []string
}

var _ statebackend.SegmentStore = (*memoryStore)(nil)

func (m *memoryStore) path(name string) string {
	return filepath.Join(m.dir, strings.ReplaceAll(name, "/", "_"))
}

func (m *memoryStore) Upload(_ context.Context, local, name string, _ uint64, _ uint32) error {
	if m.broken != nil {
		return m.broken
	}
	m.uploads = append(m.uploads, name)
	return os.Rename(local, m.path(name))
}

func (m *memoryStore) Fetch(_ context.Context, seg *snapshotv1.Segment) (string, error) {
	if _, err := os.Stat(m.path(seg.GetName())); err != nil {
		return "", &statebackend.LostError{Name: seg.GetName(), Err: fs.ErrNotExist}
	}
	return m.path(seg.GetName()), nil
}
