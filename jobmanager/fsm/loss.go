package fsm

import (
	"math"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"google.golang.org/protobuf/proto"
)

// lossLevel is the level from which on a job can begin with losses that an operator has accepted.
const lossLevel = 20

// maxLost bounds the losses that are kept one by one of one job.
const maxLost = 10000

// recordLoss records output that a completed checkpoint lists and that was not committed. It is known once for each transaction; what
// was accepted stays so. Beyond the bound it forgets the oldest ones, accepted or not, which updateLosses does not.
func recordLoss(c *raftv1.RecordLoss) change {
	return func(r *raftv1.JobRecord) error {
		if !addLost(r, c.GetLost()) {
			return errRepeated
		}
		r.Lost = newest(r.Lost, maxLost)
		return nil
	}
}

// updateLosses is recordLoss for losses that may be pending: an abort is ordered, and the order is known before anybody carries it out. What
// comes of it is told by whoever has done it, or by whoever settles the checkpoint: it tells of what is lost first, so that what is still
// pending when it is done has been committed.
func updateLosses(c *raftv1.UpdateLosses) change {
	return func(r *raftv1.JobRecord) error {
		changed := withdraw(r, c.GetWithdrawn())
		lost := c.GetLost()
		if Terminal(r.GetState()) && r.GetUnsettled() == "" { // nothing is left that could be aborted
			lost = slices.DeleteFunc(slices.Clone(lost), (*jobv1.LostOutput).GetPending)
		}
		if !addLost(r, lost) && !changed {
			return errRepeated
		}
		r.Lost = bounded(r.Lost)
		return nil
	}
}

// lossKey tells which transaction a loss is of.
type lossKey struct {
	sink, transaction string
	checkpoint        uint64
}

func keyOf(l *jobv1.LostOutput) lossKey {
	return lossKey{l.GetSink(), l.GetTransaction(), l.GetCheckpoint()}
}

func addLost(r *raftv1.JobRecord, lost []*jobv1.LostOutput) (changed bool) {
	known := make(map[lossKey]int, len(r.GetLost()))
	for i, l := range r.GetLost() {
		known[keyOf(l)] = i
	}
	for _, l := range lost {
		i, ok := known[keyOf(l)]
		switch {
		case !ok:
			known[keyOf(l)] = len(r.Lost)
			r.Lost = append(r.Lost, l)
			changed = true
		case r.Lost[i].GetPending() && !l.GetPending():
			l = proto.CloneOf(l)
			if !l.GetAccepted() {
				l.Accepted = true // by the one who has ordered to abort it
				l.Reason += "; it was to be aborted by hand"
			}
			r.Lost[i] = l
			changed = true
		case l.GetAccepted() && !r.Lost[i].GetAccepted():
			r.Lost[i] = proto.CloneOf(r.Lost[i])
			r.Lost[i].Accepted = true
			changed = true
		}
	}
	return changed
}

func withdraw(r *raftv1.JobRecord, withdrawn []*jobv1.LostOutput) (changed bool) {
	return forget(r, func(l *jobv1.LostOutput) bool {
		return slices.ContainsFunc(withdrawn, func(w *jobv1.LostOutput) bool { return keyOf(w) == keyOf(l) })
	})
}

// committed drops the pending losses of transactions that are known to be committed, because everything up to a checkpoint is settled.
func committed(r *raftv1.JobRecord, checkpoint uint64) (changed bool) {
	return forget(r, func(l *jobv1.LostOutput) bool { return l.GetCheckpoint() <= checkpoint })
}

// allCheckpoints is for what holds for whatever checkpoint a transaction is of.
const allCheckpoints = math.MaxUint64

func forget(r *raftv1.JobRecord, which func(*jobv1.LostOutput) bool) (changed bool) {
	before := len(r.GetLost())
	r.Lost = slices.DeleteFunc(r.Lost, func(l *jobv1.LostOutput) bool { return l.GetPending() && which(l) })
	return len(r.GetLost()) != before
}

// bounded makes room by forgetting the oldest losses that are accepted, and then by counting the oldest ones in place of keeping each.
func bounded(lost []*jobv1.LostOutput) []*jobv1.LostOutput {
	over := -maxLost
	for _, l := range lost {
		if l.GetTransactions() == 0 {
			over++
		}
	}
	var gone []*jobv1.LostOutput
	for _, accepted := range []bool{true, false} {
		lost = slices.DeleteFunc(lost, func(l *jobv1.LostOutput) bool {
			if over <= 0 || l.GetTransactions() > 0 || l.GetPending() || l.GetAccepted() != accepted {
				return false
			}
			over--
			if !accepted {
				gone = append(gone, l)
			}
			return true
		})
	}
	return counted(lost, gone)
}

// counted adds losses to those that are counted: one entry for those that are proven, and one for those that are unknown.
func counted(lost, more []*jobv1.LostOutput) []*jobv1.LostOutput {
	for _, unknown := range []bool{false, true} {
		sum := &jobv1.LostOutput{Checkpoint: math.MaxUint64, Unknown: unknown, Reason: "there is no room to tell of each"}
		add := func(l *jobv1.LostOutput) {
			sum.Transactions += max(1, l.GetTransactions())
			sum.Checkpoint = min(sum.GetCheckpoint(), l.GetCheckpoint())
			if l.GetRecords() < 0 || sum.GetRecords() < 0 {
				sum.Records = -1 // unknown
			} else {
				sum.Records += l.GetRecords()
			}
		}
		for _, l := range more {
			if l.GetUnknown() == unknown {
				add(l)
			}
		}
		if sum.GetTransactions() == 0 {
			continue
		}
		i := slices.IndexFunc(lost, func(l *jobv1.LostOutput) bool {
			return l.GetTransactions() > 0 && l.GetUnknown() == unknown && !l.GetAccepted()
		})
		if i >= 0 {
			add(lost[i])
			lost = slices.Delete(lost, i, i+1)
		}
		lost = slices.Insert(lost, 0, sum)
	}
	return lost
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
