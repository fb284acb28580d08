package fsm

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// replaceTransactions makes transactions of the attempt being prepared take the place of lost ones of its restore point. The entry
// comes before their commit, so whoever restores from that checkpoint next finds the same ones here.
func (s *State) replaceTransactions(c *raftv1.ReplaceTransactions) change {
	return func(r *raftv1.JobRecord) error {
		if c.GetAttempt() != r.GetAttempt() || c.GetAttempt() == 0 {
			return fmt.Errorf("attempt %d, current is %d: %w", c.GetAttempt(), r.GetAttempt(), ErrStaleAttempt)
		}
		switch {
		case settlingEnded(r):
			if err := s.settledElsewhere(r); err != nil {
				return err
			}
		case r.GetState() == jobv1.JobState_JOB_STATE_SETTLING && r.GetSettlingAttempt():
		default:
			if err := live(r); err != nil {
				return err
			}
		}
		switch {
		case r.GetState() == jobv1.JobState_JOB_STATE_RESTARTING:
			return fmt.Errorf("attempt %d has failed: %w", c.GetAttempt(), ErrStaleAttempt)
		case r.GetStarted():
			return fmt.Errorf("attempt %d: %w", c.GetAttempt(), ErrStarted)
		case !unsettled(r.GetRestore()) || r.GetRestore().GetCheckpoint() != c.GetCheckpoint():
			return fmt.Errorf("attempt %d restores nothing from checkpoint %d that could be lost: %w", c.GetAttempt(), c.GetCheckpoint(), ErrInvalid)
		}
		next, changed, err := checkpoint.Replace(replacements(r), c.GetReplacements())
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		case !changed:
			return errRepeated
		}
		r.Replaced = &raftv1.Replacements{Checkpoint: c.GetCheckpoint(), Replacements: next}
		return nil
	}
}

// unsettled reports whether a restore point may have transactions to commit.
func unsettled(p *workerv1.RestorePoint) bool {
	return p != nil && !p.GetSettled() && !p.GetSavepoint()
}

// replacements are those of the checkpoint that the job would restore now.
func replacements(r *raftv1.JobRecord) []*workerv1.Replacement {
	if len(r.GetReplaced().GetReplacements()) == 0 || r.GetReplaced().GetCheckpoint() != lastID(r) {
		return nil
	}
	return r.GetReplaced().GetReplacements()
}

// mayHaveRewritten reports whether the current attempt, which has not been started, may have written lost output again, and so have left
// a transaction open.
func mayHaveRewritten(r *raftv1.JobRecord) bool {
	return r.GetAttempt() > 0 && !r.GetStarted() && DurableOutput(r.GetGraph()) && unsettled(r.GetRestore())
}

// DurableOutput reports whether a job keeps the records of prepared transactions with its checkpoints.
func DurableOutput(g *jobv1.Graph) bool {
	return slices.ContainsFunc(g.GetVertices(), func(v *jobv1.Vertex) bool {
		return slices.ContainsFunc(v.GetOperators(), (*jobv1.Operator).GetDurableOutput)
	})
}
