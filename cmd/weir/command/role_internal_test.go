package command

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNodeThatDoesNotStopIsLeft(t *testing.T) {
	hangs := make(chan struct{})
	done := make(chan struct{})
	r := role[int]{name: "node", limit: func(int) time.Duration { return 20 * time.Millisecond }, run: func(context.Context, int, *slog.Logger) error {
		defer close(done)
		<-hangs
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := r.runWithin(ctx, 0, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "the node did not stop within 20ms")
	close(hangs)
	<-done
}
