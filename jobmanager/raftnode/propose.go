package raftnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Propose appends a command to the log and returns what the state machine made of it. Without a deadline in ctx it waits until the
// library knows the outcome, which is bounded by the loss of leadership.
func (n *Node) Propose(ctx context.Context, command []byte) (any, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	f := n.raft.Apply(command, enqueueTimeout(ctx))
	if err := n.wait(ctx, f); err != nil {
		return nil, err
	}
	return f.Response(), nil
}

// Barrier returns nil when every entry before it has been applied here and this member still led afterwards.
func (n *Node) Barrier(ctx context.Context) error {
	return n.wait(ctx, n.raft.Barrier(enqueueTimeout(ctx)))
}

func enqueueTimeout(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return max(time.Until(d), time.Millisecond)
	}
	return 0
}

// wait waits for a future. The goroutine it may leave behind ends with the future, at the latest when raft stops.
func (n *Node) wait(ctx context.Context, f raft.Future) error {
	result := make(chan error, 1)
	go func() { result <- f.Error() }()
	select {
	case err := <-result:
		return outcome(err)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// outcome sorts the library's errors into "certainly not in the log" and "unknown".
func outcome(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}
