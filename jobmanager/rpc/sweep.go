package rpc

import (
	"context"
	"math"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// leastSweepAge keeps a slip of the keyboard from what is being written.
const leastSweepAge = time.Minute

// SweepStorage implements jobv1.JobServiceServer.
func (s *Services) SweepStorage(ctx context.Context, req *jobv1.SweepStorageRequest) (*jobv1.SweepStorageResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetOlderThanMs() < uint64(leastSweepAge.Milliseconds()) || req.GetOlderThanMs() > math.MaxInt64/uint64(time.Millisecond) {
		return nil, invalid("files of less than %s are not swept: give a longer time", leastSweepAge)
	}
	swept, err := l.Jobs.Sweep(ctx, time.Duration(req.GetOlderThanMs())*time.Millisecond, req.GetDryRun())
	if err != nil {
		return nil, mapped(err)
	}
	resp := &jobv1.SweepStorageResponse{More: swept.More, LeftAlone: swept.LeftAlone}
	for _, o := range swept.Orphans {
		out := &jobv1.Orphan{Name: o.Name, Size: uint64(o.Size), AgeMs: uint64(o.Age.Milliseconds()), Reason: o.Reason}
		if o.Err != nil {
			out.Error = o.Err.Error()
		}
		resp.Orphans = append(resp.Orphans, out)
	}
	return resp, nil
}
