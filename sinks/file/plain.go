package filesink

import (
	"context"
	"errors"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// plain is the sink of one subtask for the guarantees without transactions: files are finished as soon as they are ended, at every
// barrier among others.
type plain[T any] struct {
	parts[T]
	begun bool
}

var _ sinks.Writer[int] = (*plain[int])(nil)

// Open also removes what former attempts left unfinished: their records are read again.
func (s *plain[T]) Open(ctx context.Context, sc sinks.Context) error {
	if err := s.parts.Open(ctx, sc); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	return recoverAbort(ctx, s.store, s.writer, operator.Scope{Subtask: sc.Subtask, Parallelism: sc.Parallelism})
}

func (s *plain[T]) Write(ctx context.Context, v T, timestamp int64) error {
	if !s.begun {
		s.begin()
		s.begun = true
	}
	if err := s.write(ctx, v, timestamp); err != nil {
		return err
	}
	return s.finish(ctx)
}

// finish gives the files that are ended their names.
func (s *plain[T]) finish(ctx context.Context) error {
	if len(s.sealed) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.settings.deadline)
	defer cancel()
	if err := publish(ctx, s.store, &prepared{writer: s.writer, Sequence: s.sequence, Files: s.sealed}); err != nil {
		return err
	}
	s.sealed = nil
	return nil
}

func (s *plain[T]) Flush(ctx context.Context) error {
	if !s.begun {
		return nil
	}
	if _, err := s.sealAll(ctx); err != nil {
		return err
	}
	s.begun = false
	return s.finish(ctx)
}

// Close gives up what was not flushed.
func (s *plain[T]) Close() error {
	var err error
	if s.begun {
		ctx, cancel := context.WithTimeout(context.Background(), s.settings.deadline)
		defer cancel()
		err = s.discard(ctx)
	}
	return errors.Join(err, s.parts.Close())
}
