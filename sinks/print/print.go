// Package printsink writes one line per record to standard output, for a first look at a job. It is at-least-once with checkpoints and
// gives no guarantee without: lines printed after the last completed checkpoint are printed again after a restart.
package printsink

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/weir-stream/weir/sinks"
)

// Option sets one thing about the sink.
type Option func(*settings)

type settings struct {
	out    io.Writer
	prefix string
}

// To writes to w instead of standard output.
func To(w io.Writer) Option { return func(s *settings) { s.out = w } }

// Prefix begins each line.
func Prefix(p string) Option { return func(s *settings) { s.prefix = p } }

// New makes a sink that prints each value in fmt's default format. Lines of several subtasks do not mix within a line.
func New[T any](opts ...Option) sinks.Sink[T] {
	s := settings{out: os.Stdout}
	for _, o := range opts {
		o(&s)
	}
	shared := &lockedWriter{w: s.out}
	return sinks.Plain(sinks.PlainConfig[T]{
		Kind: "print",
		New: func() (sinks.Writer[T], error) {
			return &writer[T]{out: shared, prefix: s.prefix}, nil
		},
	})
}

// lockedWriter lets the subtasks of one process share an output.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

type writer[T any] struct {
	out    io.Writer
	prefix string
	buf    *bufio.Writer
}

func (w *writer[T]) Open(context.Context, sinks.Context) error {
	w.buf = bufio.NewWriterSize(w.out, 64<<10)
	return nil
}

// Write prints a line at once: who looks at a printing job wants to see it run.
func (w *writer[T]) Write(_ context.Context, v T, _ int64) error {
	if _, err := fmt.Fprintf(w.buf, "%s%v\n", w.prefix, v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return w.Flush(context.Background())
}

func (w *writer[T]) Flush(context.Context) error {
	if err := w.buf.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

func (w *writer[T]) Close() error { return nil }
