package postgressink

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// busy returns a control of which somebody holds the turn until the context that he was given ends.
func busy(t *testing.T, deadline time.Duration) (c *control, held chan error) {
	t.Helper()
	c = &control{}
	c.init(&settings{deadline: deadline}, &server{}, writer{})
	held = make(chan error, 1)
	c.turn <- struct{}{}
	ctx, cancel := context.WithCancel(context.Background())
	require.True(t, c.begin(cancel))
	go func() {
		<-ctx.Done()
		held <- ctx.Err()
		<-c.turn
	}()
	return c, held
}

func TestWaitForTheConnectionEndsWithItsContext(t *testing.T) {
	c, held := busy(t, time.Minute)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to"))
	err := c.with(ctx, func(context.Context, *pgx.Conn) error { panic("it is not our turn") })
	require.ErrorIs(t, err, context.Canceled)
	c.settings.deadline = time.Millisecond
	err = c.with(t.Context(), func(context.Context, *pgx.Conn) error { panic("it is not our turn") })
	require.ErrorIs(t, err, context.DeadlineExceeded, "the sink's deadline counts the wait as well")
	require.Empty(t, held)
	require.NoError(t, c.close())
	require.ErrorIs(t, <-held, context.Canceled, "closing cuts off what goes on")
	require.ErrorIs(t, c.with(t.Context(), func(context.Context, *pgx.Conn) error { return nil }), errClosed)
}
