package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
)

// errSilent ends a request to a JobManager that answers nothing any more, such as a frozen process, whose connections stand.
var errSilent = status.Error(codes.Unavailable, "the JobManager does not answer any more")

// watched makes a request and asks the JobManager meanwhile, from time to time, whether it is there: a request may take minutes, and
// the connection to a frozen process would be noticed late.
func (c *Client) watched(ctx context.Context, conn *grpc.ClientConn, fn func(ctx context.Context, conn grpc.ClientConnInterface) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		timer := time.NewTicker(c.cfg.Probe)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			limited, stop := context.WithTimeout(ctx, 2*c.cfg.Probe)
			_, err := clusterv1.NewMembershipServiceClient(conn).GetInfo(limited, &clusterv1.GetInfoRequest{})
			stop()
			// Any answer will do, a refusal too.
			if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil {
				cancel(errSilent)
				return
			}
		}
	})
	err := fn(ctx, conn)
	silent := errors.Is(context.Cause(ctx), errSilent)
	close(done)
	cancel(nil) // ends a question under way
	asking.Wait()
	if err != nil && silent {
		return errSilent
	}
	return err
}
