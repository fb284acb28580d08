package fsm

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"google.golang.org/protobuf/proto"
)

// lossLevel is the level from which on a job can begin with losses that an operator has accepted.
const lossLevel = 20

// maxLost bounds the losses kept of one job.
const maxLost = 10000

// recordLoss records output that a completed checkpoint lists and that was not committed. It is known once for each transaction; what
// was accepted stays so.
func recordLoss(c *raftv1.RecordLoss) change {
	return func(r *raftv1.JobRecord) error {
		if !addLost(r, c.GetLost()) {
			return errRepeated
		}
		return nil
	}
}

func addLost(r *raftv1.JobRecord, lost []*jobv1.LostOutput) (changed bool) {
	for _, l := range lost {
		i := slices.IndexFunc(r.GetLost(), func(old *jobv1.LostOutput) bool {
			return old.GetTransaction() == l.GetTransaction() && old.GetCheckpoint() == l.GetCheckpoint() && old.GetSink() == l.GetSink()
		})
		switch {
		case i < 0:
			r.Lost = append(r.Lost, l)
			changed = true
		case l.GetAccepted() && !r.Lost[i].GetAccepted():
			r.Lost[i] = proto.CloneOf(r.Lost[i])
			r.Lost[i].Accepted = true
			changed = true
		}
	}
	r.Lost = newest(r.Lost, maxLost)
	return changed
}

// Unaccepted returns the losses of a job up to a checkpoint that nobody has accepted.
func Unaccepted(r *raftv1.JobRecord, checkpoint uint64) (lost []*jobv1.LostOutput) {
	for _, l := range r.GetLost() {
		if !l.GetAccepted() && l.GetCheckpoint() <= checkpoint {
			lost = append(lost, l)
		}
	}
	return lost
}

// settleResult follows the settling of a job that had ended with transactions left open.
func settleResult(c *raftv1.SettleResult) change {
	return func(r *raftv1.JobRecord) error {
		if !Terminal(r.GetState()) {
			return fmt.Errorf("%w: it is %s", ErrJobLive, stateName(r.GetState()))
		}
		changed := c.GetCheckpoint() > 0 && settleUpTo(r, c.GetCheckpoint())
		if r.GetUnsettled() != c.GetUnsettled() {
			r.Unsettled, changed = c.GetUnsettled(), true
		}
		if r.GetUnsettled() == "" {
			r.Token, r.Placements = "", nil
		}
		fenced := func(attempt uint64) bool { return slices.Contains(c.GetAttempts(), attempt) }
		before := len(r.GetUnfenced())
		r.Unfenced = slices.DeleteFunc(r.Unfenced, func(f *workerv1.FencedAttempt) bool { return fenced(f.GetAttempt()) })
		r.UnfencedWorkers = slices.DeleteFunc(r.UnfencedWorkers, func(w *raftv1.AttemptWorkers) bool { return fenced(w.GetAttempt()) })
		if !changed && len(r.GetUnfenced()) == before {
			return errRepeated
		}
		collect(r)
		return nil
	}
}

// RestorePoint returns what an attempt that began now would start from, nil for nothing.
func RestorePoint(r *raftv1.JobRecord) *workerv1.RestorePoint { return restorePoint(r) }
