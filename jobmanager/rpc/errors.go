package rpc

import (
	"errors"
	"fmt"

	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// domain maps what the state machine and the log answer to errors that cross the wire.
var domain = []struct{ from, to error }{
	{fsm.ErrUnknownJob, grpcerr.ErrJobNotFound},
	{fsm.ErrNameTaken, grpcerr.ErrNameTaken},
	{fsm.ErrInvalid, grpcerr.ErrInvalid},
	{fsm.ErrBeingSettled, grpcerr.ErrInvalid},
	{fsm.ErrJobEnding, grpcerr.ErrJobEnded},
	{fsm.ErrJobEnded, grpcerr.ErrJobEnded},
	{fsm.ErrStopping, grpcerr.ErrStopInProgress},
	{fsm.ErrRescaling, grpcerr.ErrJobNotRunning},
	{fsm.ErrRescaled, grpcerr.ErrJobNotRunning},
	{raftnode.ErrNotLeader, grpcerr.ErrNotLeader},
	{raftnode.ErrQuorum, grpcerr.ErrInvalid},
}

// withIdentity is an error that also is another one, without that one's text.
type withIdentity struct {
	error
	is error
}

func (e *withIdentity) Unwrap() []error { return []error{e.error, e.is} }

// mapped gives an error its identity on the wire.
func mapped(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, raftnode.ErrUnknownOutcome) || errors.Is(err, grpcerr.ErrUnknownOutcome) {
		return fmt.Errorf("%w: the leader changed while the request was on its way; repeat it with the same request id to learn what became of it", grpcerr.ErrUnknownOutcome)
	}
	for _, d := range domain {
		if errors.Is(err, d.from) {
			return &withIdentity{err, d.to}
		}
	}
	return err
}
