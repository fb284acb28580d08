package fsm

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"google.golang.org/protobuf/proto"
)

// completeCheckpoint is the commit point of exactly-once: once it succeeds, the output of the checkpoint will be committed.
func completeCheckpoint(c *raftv1.CompleteCheckpoint) change {
	return func(r *raftv1.JobRecord) error {
		cp := c.GetCheckpoint()
		if err := live(r); err != nil {
			return err
		}
		switch last := lastID(r); {
		case cp.GetAttempt() != r.GetAttempt():
			return fmt.Errorf("checkpoint %d of attempt %d, current is %d: %w",
				cp.GetId(), cp.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		case !r.GetStarted():
			return fmt.Errorf("checkpoint %d of attempt %d: %w", cp.GetId(), cp.GetAttempt(), ErrNotStarted)
		case cp.GetId() <= last:
			return fmt.Errorf("checkpoint %d after %d: %w", cp.GetId(), last, ErrCheckpointNotNewer)
		case cp.GetId() >= r.GetNextCheckpoint():
			return fmt.Errorf("checkpoint %d, reserved below %d: %w", cp.GetId(), r.GetNextCheckpoint(), ErrNotReserved)
		case cp.GetMetadata() == nil:
			return fmt.Errorf("checkpoint %d has no metadata: %w", cp.GetId(), ErrInvalid)
		}
		if err := checkTarget(r, cp, c.GetTarget()); err != nil {
			return err
		}
		if err := checkOrigins(r, cp); err != nil {
			return err
		}
		cp = proto.CloneOf(cp)
		cp.Settled = cp.GetSettled() || cp.GetCommittables() == 0
		r.Checkpoints = append(r.Checkpoints, cp)
		r.CompletedCheckpoints++
		if c.GetTarget() != jobv1.JobState_JOB_STATE_UNSPECIFIED {
			settle(r, c.GetTarget())
		}
		collect(r)
		return nil
	}
}

// lastID returns the highest id that is behind the job: the newest completed checkpoint is retained as long as the job lives.
func lastID(r *raftv1.JobRecord) uint64 {
	if last, ok := LastCheckpoint(r); ok {
		return last.GetId()
	}
	return r.GetFrom().GetCheckpoint()
}

func checkTarget(r *raftv1.JobRecord, cp *raftv1.CompletedCheckpoint, target jobv1.JobState) error {
	switch target {
	case jobv1.JobState_JOB_STATE_UNSPECIFIED:
		return nil
	case jobv1.JobState_JOB_STATE_FINISHED:
		if cp.GetFinal() {
			return nil
		}
	case jobv1.JobState_JOB_STATE_STOPPED:
		if !cp.GetStop() {
			break
		}
		if r.GetStopRequestId() == "" {
			return fmt.Errorf("checkpoint %d was taken for a stop: %w", cp.GetId(), ErrNotStopping)
		}
		return nil
	}
	return fmt.Errorf("checkpoint %d cannot make the job %s: %w", cp.GetId(), stateName(target), ErrInvalid)
}

// checkOrigins makes sure that what the checkpoint needs has not been handed to deletion while it was under way.
func checkOrigins(r *raftv1.JobRecord, cp *raftv1.CompletedCheckpoint) error {
	for _, o := range cp.GetOrigins() {
		protects := func(kept *raftv1.CompletedCheckpoint) bool {
			return kept.GetId() == o || slices.Contains(kept.GetOrigins(), o)
		}
		if o != cp.GetId() && !slices.ContainsFunc(r.GetCheckpoints(), protects) {
			return fmt.Errorf("checkpoint %d needs files of checkpoint %d: %w", cp.GetId(), o, ErrMissingOrigin)
		}
	}
	return nil
}

// collect moves the checkpoints that retention lets go to the garbage. A pinned one stays, as does what the current attempt was
// restored from: its tasks may still read those files.
func collect(r *raftv1.JobRecord) {
	keep := max(1, int(r.GetGraph().GetCheckpoints().GetRetained()))
	inUse := r.GetRestore().GetCheckpoint()
	if Terminal(r.GetState()) {
		keep, inUse = keepAtEnd(r), 0
	}
	var kept []*raftv1.CompletedCheckpoint
	for i, cp := range r.GetCheckpoints() {
		if newest := i >= len(r.GetCheckpoints())-keep; newest || cp.GetPinned() || cp.GetId() == inUse {
			kept = append(kept, cp)
		} else {
			r.Garbage = append(r.Garbage, cp)
		}
	}
	r.Checkpoints = kept
}

// keepAtEnd: a job that may be continued keeps its last checkpoint, and so does one with transactions still to settle or with lost
// output, of which somebody has to decide.
func keepAtEnd(r *raftv1.JobRecord) int {
	switch r.GetState() {
	case jobv1.JobState_JOB_STATE_FAILED, jobv1.JobState_JOB_STATE_STOPPED:
		return 1
	}
	if r.GetUnsettled() != "" || slices.ContainsFunc(r.GetLost(), func(l *jobv1.LostOutput) bool { return !l.GetAccepted() }) {
		return 1
	}
	return 0
}

func settleCheckpoint(c *raftv1.SettleCheckpoint) change {
	return func(r *raftv1.JobRecord) error {
		if c.GetCheckpoint() > lastID(r) {
			return fmt.Errorf("checkpoint %d: %w", c.GetCheckpoint(), ErrUnknownCheckpoint)
		}
		if !settleUpTo(r, c.GetCheckpoint()) {
			return errRepeated
		}
		return nil
	}
}

func settleUpTo(r *raftv1.JobRecord, id uint64) (changed bool) {
	if r.GetReplaced() != nil && r.GetReplaced().GetCheckpoint() <= id {
		r.Replaced, changed = nil, true
	}
	changed = committed(r, id) || changed
	for i, cp := range r.Checkpoints {
		if cp.GetId() <= id && !cp.GetSettled() {
			cp = proto.CloneOf(cp)
			cp.Settled = true
			r.Checkpoints[i] = cp
			changed = true
		}
	}
	return changed
}

func (s *State) reserve(c *raftv1.ReserveCheckpointIDs) Result {
	var first uint64
	res := s.update(c.GetJobId(), func(r *raftv1.JobRecord) error {
		if err := live(r); err != nil {
			return err
		}
		if c.GetLimit() <= r.GetNextCheckpoint() {
			return fmt.Errorf("ids below %d, asked for below %d: %w", r.GetNextCheckpoint(), c.GetLimit(), ErrAlreadyReserved)
		}
		first, r.NextCheckpoint = r.GetNextCheckpoint(), c.GetLimit()
		return nil
	})
	res.FirstID = first
	return res
}

func pinCheckpoint(c *raftv1.PinCheckpoint) change {
	return func(r *raftv1.JobRecord) error {
		i := slices.IndexFunc(r.Checkpoints, func(cp *raftv1.CompletedCheckpoint) bool { return cp.GetId() == c.GetCheckpoint() })
		if i < 0 {
			return fmt.Errorf("checkpoint %d: %w", c.GetCheckpoint(), ErrUnknownCheckpoint)
		}
		if r.Checkpoints[i].GetPinned() == c.GetPinned() {
			return errRepeated
		}
		r.Checkpoints[i] = proto.CloneOf(r.Checkpoints[i])
		r.Checkpoints[i].Pinned = c.GetPinned()
		collect(r)
		return nil
	}
}

func dropGarbage(c *raftv1.DropGarbage) change {
	return func(r *raftv1.JobRecord) error {
		before := len(r.GetGarbage())
		r.Garbage = slices.DeleteFunc(r.Garbage, func(cp *raftv1.CompletedCheckpoint) bool {
			return slices.Contains(c.GetCheckpoints(), cp.GetId())
		})
		if len(r.GetGarbage()) == before {
			return errRepeated
		}
		return nil
	}
}
