package fsm

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// settleEnded begins an attempt for a job that has ended unsettled. It is in the log because it may write lost output again: of two such
// attempts only the newer one may have its transactions take the place of the lost ones, and none while a job that began with the
// checkpoint is about to do that.
func (s *State) settleEnded(c *raftv1.SettleEnded) change {
	return func(r *raftv1.JobRecord) error {
		switch {
		case !Terminal(r.GetState()):
			return fmt.Errorf("%w: it is %s", ErrJobLive, stateName(r.GetState()))
		case r.GetUnsettled() == "":
			return ErrSettled
		case c.GetAttempt() != r.GetAttempt()+1:
			return fmt.Errorf("attempt %d does not follow %d: %w", c.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		case len(c.GetPlacements()) == 0 || c.GetToken() == "":
			return fmt.Errorf("attempt %d has no placement or no token: %w", c.GetAttempt(), ErrInvalid)
		}
		if err := s.settledElsewhere(r); err != nil {
			return err
		}
		if settlingEnded(r) { // what came before has been retired with the job's end
			retire(r)
		}
		s.learnFromOrigin(r)
		r.Attempt = c.GetAttempt()
		r.Placements = c.GetPlacements()
		r.Token = c.GetToken()
		r.Started, r.SettlingAttempt = false, true
		r.Restore = restorePoint(r)
		return nil
	}
}

// settlingEnded reports whether the current attempt is one of a job that has ended: the end takes the token away.
func settlingEnded(r *raftv1.JobRecord) bool { return Terminal(r.GetState()) && r.GetToken() != "" }

// settledElsewhere refuses to settle a checkpoint of which another job is to decide: a live one that began with it, or the one whose
// checkpoint it is.
func (s *State) settledElsewhere(r *raftv1.JobRecord) error {
	from := restorePoint(r)
	if !unsettled(from) {
		return nil
	}
	if len(r.GetCheckpoints()) == 0 {
		i, cp := s.originOf(from)
		switch {
		case i < 0:
			return fmt.Errorf("%w: the job whose checkpoint it is has been forgotten", ErrUnknownCheckpoint)
		case !cp.GetSettled():
			return fmt.Errorf("%w by job %s (%s), whose checkpoint it is", ErrBeingSettled, s.v.jobs[i].GetName(), s.v.jobs[i].GetId())
		}
		return nil
	}
	if other := s.beginningWith(from, r.GetId()); other != nil {
		return fmt.Errorf("%w by job %s (%s), which began with it", ErrBeingSettled, other.GetName(), other.GetId())
	}
	return nil
}

// learnFromOrigin notes that the checkpoint with which a job began has been settled by others since.
func (s *State) learnFromOrigin(r *raftv1.JobRecord) {
	if len(r.GetCheckpoints()) > 0 || !unsettled(r.GetFrom()) {
		return
	}
	if i, cp := s.originOf(r.GetFrom()); i >= 0 && cp.GetSettled() {
		r.From = proto.CloneOf(r.GetFrom())
		r.From.Settled, r.From.Replacements = true, nil
		r.Replaced = nil
	}
}

// beginningWith returns a live job, other than one, that is about to settle the transactions of a checkpoint; nil without any.
func (s *State) beginningWith(from *workerv1.RestorePoint, butNot string) *raftv1.JobRecord {
	for _, r := range s.v.jobs {
		if r.GetId() != butNot && !Terminal(r.GetState()) && unsettled(r.GetFrom()) && r.GetFrom().GetMetadata().GetName() == from.GetMetadata().GetName() {
			return r
		}
	}
	return nil
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
			changed = committed(r, allCheckpoints) || changed
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
