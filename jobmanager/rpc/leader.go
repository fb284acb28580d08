package rpc

import (
	"context"
	"errors"
	"time"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// verifyTimeout bounds the question whether this member still leads. A leader without a majority gives up by itself before.
const verifyTimeout = 5 * time.Second

// leader returns the leadership after it was confirmed by a majority, so that no answer comes from a state that a newer leader has
// moved on from. Everything that was acknowledged to anybody before the call shows in the view taken after it.
func (s *Services) leader(ctx context.Context) (*Leader, error) {
	l, err := s.cluster.Leader()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if s.cluster.Verify(ctx, l.Term) == nil {
		return l, nil
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil, ctx.Err()
	}
	// Who leads instead is not known here; the client asks the others.
	return nil, &grpcerr.NotLeaderError{}
}

// job finds a job for a request that changes nothing, together with the confirmed leadership.
func (s *Services) job(ctx context.Context, job string) (*Leader, *raftv1.JobRecord, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, nil, err
	}
	rec, err := find(l.Log.View(), job)
	return l, rec, err
}
