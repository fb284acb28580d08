package kafkasink

import (
	"context"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// plain is the sink of one subtask for the guarantees without transactions. Its client is idempotent, so repeats inside the client
// make no duplicates.
type plain[T any] struct {
	encoder[T]
	lane   *lane
	pusher operator.Pusher // nil unless the client can be told
}

var (
	_ sinks.Writer[int] = (*plain[int])(nil)
	_ operator.Pusher   = (*plain[int])(nil)
)

func (s *plain[T]) Open(ctx context.Context, sc sinks.Context) error {
	if err := s.connect(ctx, sc); err != nil {
		return err
	}
	t := s.newTracker("")
	p, err := s.settings.newProducer(s.producerConfig("", true, t))
	if err != nil {
		return err
	}
	s.lane = &lane{producer: p, tracker: t}
	s.pusher, _ = p.(operator.Pusher)
	return nil
}

func (s *plain[T]) Write(ctx context.Context, v T, timestamp int64) error {
	return s.write(ctx, s.lane, v, timestamp)
}

// Push has what was written leave before it has lingered. In a transaction that would make nothing visible.
func (s *plain[T]) Push() {
	if s.pusher != nil && s.lane.begun {
		s.pusher.Push()
	}
}

func (s *plain[T]) Flush(ctx context.Context) error {
	if !s.lane.begun {
		return nil
	}
	if _, err := s.lane.flush(ctx, s.settings.deadline); err != nil {
		return s.explain(ctx, err)
	}
	s.lane.tracker.begin()
	s.lane.begun = false
	return nil
}

func (s *plain[T]) Close() error {
	if s.lane != nil {
		s.lane.producer.Close()
	}
	s.close()
	return nil
}
