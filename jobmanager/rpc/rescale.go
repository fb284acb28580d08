package rpc

import (
	"context"
	"fmt"
	"maps"
	"slices"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/fsm"
)

// RescaleJob implements jobv1.JobServiceServer. It answers when the attempt with the new parallelism has begun, or when the rescale has
// failed and the job goes on as it was.
func (s *Services) RescaleJob(ctx context.Context, req *jobv1.RescaleJobRequest) (*jobv1.RescaleJobResponse, error) {
	l, rec, err := s.live(ctx, req.GetJob(), req.GetRequestId())
	if err != nil {
		return nil, err
	}
	if o := fsm.RescaleOf(rec, req.GetRequestId()); o != nil {
		if o.GetError() != "" {
			return nil, fmt.Errorf("%w: %s", grpcerr.ErrRescaleFailed, o.GetError())
		}
		return rescaled(rec, o), nil
	}
	x := rec.GetRescale()
	if x.GetRequestId() != req.GetRequestId() {
		if err := mayRescale(rec, req); err != nil {
			return nil, err
		}
		if x, err = s.rescale(ctx, l, rec, req); err != nil {
			return nil, err
		}
		if unchanged(rec, x) {
			slots := fsm.Slots(rec.GetGraph())
			return &jobv1.RescaleJobResponse{JobId: rec.GetId(), From: slots, To: slots}, nil
		}
	}
	o, err := l.Jobs.Rescale(ctx, rec.GetId(), x)
	if err != nil {
		return nil, mapped(err)
	}
	return rescaled(rec, o), nil
}

func rescaled(rec *raftv1.JobRecord, o *raftv1.RescaleOutcome) *jobv1.RescaleJobResponse {
	return &jobv1.RescaleJobResponse{JobId: rec.GetId(), Attempt: o.GetAttempt(), From: o.GetFrom(), To: o.GetTo()}
}

// mayRescale refuses what can be refused before the job is planned again.
func mayRescale(rec *raftv1.JobRecord, req *jobv1.RescaleJobRequest) error {
	highest := rec.GetGraph().GetMaxParallelism()
	tooHigh := func(what string, n uint32) error {
		return invalid("%s %d is above the job's maximum parallelism %d, which is fixed since its first start because keys are filed by it", what, n, highest)
	}
	if fsm.Terminal(rec.GetState()) {
		return ended(rec)
	}
	if req.GetParallelism() > highest {
		return tooHigh("parallelism", req.GetParallelism())
	}
	for _, name := range slices.Sorted(maps.Keys(req.GetOperatorParallelism())) {
		if n := req.GetOperatorParallelism()[name]; n > highest {
			return tooHigh("parallelism of operator "+name+",", n)
		}
	}
	switch {
	case req.GetParallelism() == 0 && len(req.GetOperatorParallelism()) == 0 && !req.GetAutoParallelism():
		return invalid("nothing to change: give a parallelism, or one of an operator")
	case req.GetParallelism() > 0 && req.GetAutoParallelism():
		return invalid("the parallelism is either %d or chosen by the cluster", req.GetParallelism())
	case !rec.GetGraph().GetCheckpoints().GetEnabled():
		return invalid("job %s takes no checkpoints, so it cannot go on from one with another parallelism; cancel it and submit it anew", rec.GetName())
	}
	return nil
}

// rescale plans the job with the parallelism asked for.
func (s *Services) rescale(ctx context.Context, l *Leader, rec *raftv1.JobRecord, req *jobv1.RescaleJobRequest) (*raftv1.Rescale, error) {
	x := &raftv1.Rescale{
		RequestId: req.GetRequestId(), Parallelism: rec.GetParallelism(), Auto: rec.GetAutoParallelism(),
		Base: rec.GetGraph().GetFingerprint(), Operators: make(map[string]uint32),
	}
	if n := req.GetParallelism(); n > 0 {
		x.Parallelism, x.Auto = n, false
	}
	if req.GetAutoParallelism() {
		x.Auto, x.Parallelism = true, uint32(max(1, l.Jobs.Share(rec.GetId(), rec.GetGraph().GetMaxParallelism())))
	}
	maps.Copy(x.Operators, rec.GetOperatorParallelism())
	maps.Copy(x.Operators, req.GetOperatorParallelism())
	maps.DeleteFunc(x.Operators, func(_ string, n uint32) bool { return n == 0 })
	graph, err := s.planGraph(ctx, l, &clusterv1.PlanJob{
		ArtifactSha256: rec.GetArtifactSha256(), Args: rec.GetArgs(), Parallelism: x.GetParallelism(), Name: rec.GetName(),
		OperatorParallelism: x.GetOperators(),
	})
	if err != nil {
		return nil, err
	}
	x.Graph = graph
	return x, nil
}

// unchanged reports whether a rescale would change nothing, not even what is chosen from now on.
func unchanged(rec *raftv1.JobRecord, x *raftv1.Rescale) bool {
	return x.GetGraph().GetFingerprint() == rec.GetGraph().GetFingerprint() && x.GetAuto() == rec.GetAutoParallelism() &&
		x.GetParallelism() == rec.GetParallelism() && maps.Equal(x.GetOperators(), rec.GetOperatorParallelism())
}

// checkOperators makes sure that the plan has the parallelism of each operator that was asked for. A job built with an older version, or
// planned by an older TaskManager, has not.
func checkOperators(g *jobv1.Graph, operators map[string]uint32) error {
	for _, name := range slices.Sorted(maps.Keys(operators)) {
		for _, v := range g.GetVertices() {
			for _, o := range v.GetOperators() {
				if (o.GetName() == name || o.GetUid() == name) && v.GetParallelism() != operators[name] {
					return invalid("the job does not take a parallelism for operator %s: its binary or a TaskManager is of an older version; upgrade them", name)
				}
			}
		}
	}
	return nil
}
