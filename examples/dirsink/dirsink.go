// Package dirsink writes lines to files in a directory, one file per transaction.
package dirsink

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
)

// New makes a sink that is visible as *.txt in dir, on a file system that all TaskManagers share.
func New[T any](dir string) sinks.Sink[T] {
	return sinks.TwoPhase(sinks.TwoPhaseConfig[T, *txn]{
		Kind:     "directory",
		Resource: "directory " + dir,
		Slots:    func(sources.JobSettings) int { return 1 },
		New: func() (sinks.TwoPhaseCommitSink[T, *txn], error) {
			return &sink[T]{dir: dir}, nil
		},
		NewWriter: func() (sinks.Writer[T], error) { return &writer[T]{dir: dir}, nil },
	})
}

// txn is an open file.
type txn struct {
	name string // below pending/ until it is committed
	file *os.File
	out  *bufio.Writer
}

type sink[T any] struct {
	dir  string
	sc   sinks.Context
	next int
}

// pending is where one subtask of one attempt keeps what is not committed.
func (s *sink[T]) pending(attempt uint64, subtask int) string {
	return filepath.Join(s.dir, "pending", fmt.Sprintf("%s.%s.%d.%d", s.sc.JobID, s.sc.UID, attempt, subtask))
}

func (s *sink[T]) Open(_ context.Context, sc sinks.Context) error {
	s.sc = sc
	return os.MkdirAll(s.pending(sc.Attempt, sc.Subtask), 0o755)
}

func (s *sink[T]) Begin(context.Context) (*txn, error) {
	s.next++
	t := &txn{name: filepath.Join(s.pending(s.sc.Attempt, s.sc.Subtask), fmt.Sprintf("%08d.txt", s.next))}
	var err error
	// The directory is made in Open only: when a successor has removed it this fails, which is the fence.
	if t.file, err = os.Create(t.name); err != nil {
		return nil, err
	}
	t.out = bufio.NewWriter(t.file)
	return t, nil
}

func (s *sink[T]) Write(_ context.Context, t *txn, v T, _ int64) error {
	_, err := fmt.Fprintln(t.out, v)
	return err
}

func (s *sink[T]) PreCommit(_ context.Context, t *txn) (sinks.Committable, error) {
	err := errors.Join(t.out.Flush(), t.file.Sync(), t.file.Close(), syncDir(filepath.Dir(t.name)))
	return sinks.Committable{Version: 1, Payload: []byte(t.name)}, err
}

// visible is the name of a committed file, made of the pending one so that a repeated commit finds it.
func (s *sink[T]) visible(pending string) string {
	return filepath.Join(s.dir, filepath.Base(filepath.Dir(pending))+"."+filepath.Base(pending))
}

func (s *sink[T]) Commit(_ context.Context, c sinks.Committable) error {
	pending := string(c.Payload)
	err := os.Rename(pending, s.visible(pending))
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(s.visible(pending)); statErr != nil {
			return &sinks.LostError{Sink: s.sc.UID, Transaction: pending, Detail: "the file is gone"}
		}
		err = nil // committed before
	}
	return errors.Join(err, syncDir(s.dir))
}

func (s *sink[T]) Abort(_ context.Context, t *txn) error {
	return errors.Join(t.file.Close(), os.Remove(t.name))
}

func (s *sink[T]) RecoverCommit(ctx context.Context, cs []sinks.Committable) error {
	for _, c := range cs {
		if err := s.Commit(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// RecoverAbort removes what former attempts have not committed. This subtask's share are the former subtasks equal to its own number
// modulo the parallelism.
func (s *sink[T]) RecoverAbort(_ context.Context, scope operator.Scope) error {
	for _, a := range scope.Attempts {
		for subtask := scope.Subtask; subtask < a.Parallelism; subtask += scope.Parallelism {
			dir := s.pending(a.Attempt, subtask)
			// First out of the way in one step, so that a writer that still runs cannot add a file meanwhile.
			if err := os.Rename(dir, dir+".fenced"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err := os.RemoveAll(dir + ".fenced"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sink[T]) Close() error { return nil }

// writer appends to one file per subtask of an attempt, without transactions.
type writer[T any] struct {
	dir  string
	file *os.File
	out  *bufio.Writer
}

func (w *writer[T]) Open(_ context.Context, sc sinks.Context) (err error) {
	w.file, err = os.Create(filepath.Join(w.dir, fmt.Sprintf("%s.%s.%d.%d.txt", sc.JobID, sc.UID, sc.Attempt, sc.Subtask)))
	w.out = bufio.NewWriter(w.file)
	return err
}

func (w *writer[T]) Write(_ context.Context, v T, _ int64) error {
	_, err := fmt.Fprintln(w.out, v)
	return err
}

func (w *writer[T]) Flush(context.Context) error { return errors.Join(w.out.Flush(), w.file.Sync()) }

func (w *writer[T]) Close() error { return w.file.Close() }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
