package fsm

import (
	"fmt"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// rescaleLevel is the level from which on a job can have a parallelism per operator, or one that the cluster chooses.
const rescaleLevel = 22

// maxRescales bounds the outcomes kept for each job.
const maxRescales = 20

// rescaleJob notes what the next attempt is to run with. The graph of the current attempt stays until then, because the transactional
// ids of an attempt are fenced by the graph that it ran with. Where the graph stays the same, the settings count at once.
func rescaleJob(c *raftv1.RescaleJob) change {
	if c.GetRescale() == nil {
		return func(r *raftv1.JobRecord) error {
			if r.GetRescale() == nil || r.GetRescale().GetRequestId() != c.GetFailedRequestId() {
				return errRepeated
			}
			dropRescale(r, c.GetError(), c.GetAtMs())
			return nil
		}
	}
	x := c.GetRescale()
	return func(r *raftv1.JobRecord) error {
		switch id := x.GetRequestId(); {
		case id == "" || x.GetGraph() == nil:
			return fmt.Errorf("a rescale needs a request id and a graph: %w", ErrInvalid)
		case id == r.GetRescale().GetRequestId() || RescaleOf(r, id) != nil:
			return errRepeated
		}
		if err := live(r); err != nil {
			return err
		}
		switch {
		case r.GetStopRequestId() != "":
			return ErrStopping
		case r.GetRescale() != nil:
			return ErrRescaling
		case x.GetBase() != r.GetGraph().GetFingerprint():
			return ErrRescaled
		case x.GetGraph().GetMaxParallelism() != r.GetGraph().GetMaxParallelism():
			return fmt.Errorf("maximum parallelism %d instead of %d: %w", x.GetGraph().GetMaxParallelism(), r.GetGraph().GetMaxParallelism(), ErrInvalid)
		}
		if x.GetGraph().GetFingerprint() == r.GetGraph().GetFingerprint() {
			applyRescale(r, x, r.GetAttempt())
			return nil
		}
		r.Rescale = x
		return nil
	}
}

// applyRescale makes the job run with x from the attempt on.
func applyRescale(r *raftv1.JobRecord, x *raftv1.Rescale, attempt uint64) {
	addRescale(r, &raftv1.RescaleOutcome{
		RequestId: x.GetRequestId(), Attempt: attempt, AtMs: x.GetAtMs(), From: Slots(r.GetGraph()), To: Slots(x.GetGraph()),
	})
	r.Graph, r.Parallelism, r.OperatorParallelism, r.AutoParallelism = x.GetGraph(), x.GetParallelism(), x.GetOperators(), x.GetAuto()
	r.Rescale = nil
}

// dropRescale keeps the outcome of a rescale that comes to nothing under its request id.
func dropRescale(r *raftv1.JobRecord, reason string, atMs int64) {
	if x := r.GetRescale(); x != nil {
		addRescale(r, &raftv1.RescaleOutcome{
			RequestId: x.GetRequestId(), Error: reason, AtMs: atMs, From: Slots(r.GetGraph()), To: Slots(x.GetGraph()),
		})
		r.Rescale = nil
	}
}

func addRescale(r *raftv1.JobRecord, o *raftv1.RescaleOutcome) {
	r.Rescales = newest(append(r.Rescales, o), maxRescales)
}

// RescaleOf returns the outcome of the rescale with this request id; nil when there is none.
func RescaleOf(r *raftv1.JobRecord, requestID string) *raftv1.RescaleOutcome {
	for _, o := range r.GetRescales() {
		if o.GetRequestId() == requestID {
			return o
		}
	}
	return nil
}

// Slots returns the number of slots that a graph needs: one takes subtask i of every vertex.
func Slots(g *jobv1.Graph) (n uint32) {
	for _, v := range g.GetVertices() {
		n = max(n, v.GetParallelism())
	}
	return n
}

// Next returns the graph that the next attempt is going to run.
func Next(r *raftv1.JobRecord) *jobv1.Graph {
	if x := r.GetRescale(); x != nil {
		return x.GetGraph()
	}
	return r.GetGraph()
}
