package fsm

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// originLevel is the level from which on a job can begin with a checkpoint of another one whose transactions are not settled. What becomes
// of them is recorded at the checkpoint's owner too: a third job that began with it would write lost output a second time.
const originLevel = 21

// originOf returns the position of the job that has kept a checkpoint from which another one starts, and the checkpoint; -1 for none.
func (s *State) originOf(from *workerv1.RestorePoint) (int, *raftv1.CompletedCheckpoint) {
	if from.GetSavepoint() || from.GetMetadata().GetName() == "" {
		return -1, nil
	}
	for i, r := range s.v.jobs {
		for _, cp := range r.GetCheckpoints() {
			if cp.GetMetadata().GetName() == from.GetMetadata().GetName() {
				return i, cp
			}
		}
	}
	return -1, nil
}

// begin returns where a new job starts: what the log knows of the checkpoint's transactions at this position. Only one live job at a time
// may be about to settle them.
func (s *State) begin(from *workerv1.RestorePoint) (*workerv1.RestorePoint, error) {
	if !unsettled(from) {
		return from, nil
	}
	i, cp := s.originOf(from)
	if i < 0 {
		return from, nil
	}
	if cp.GetSettled() {
		from = proto.CloneOf(from)
		from.Settled = true
		return from, nil
	}
	if r := s.beginningWith(from, ""); r != nil {
		return nil, fmt.Errorf("%w by job %s (%s), which began with it too; wait until that one runs, or cancel it", ErrBeingSettled, r.GetName(), r.GetId())
	}
	if replaced := s.v.jobs[i].GetReplaced(); replaced.GetCheckpoint() == cp.GetId() {
		from = proto.CloneOf(from)
		from.Replacements = replaced.GetReplacements()
	}
	return from, nil
}

// tellOrigin records at the owner of the checkpoint that a job began with what a command has changed about its transactions.
func (s *State) tellOrigin(res Result) Result {
	from := res.Job.GetFrom()
	if res.Err != nil || res.Repeated || from == nil {
		return res
	}
	i, cp := s.originOf(from)
	if i < 0 || cp.GetSettled() || s.v.jobs[i].GetId() == res.Job.GetId() {
		return res
	}
	owner := copyRecord(s.v.jobs[i])
	switch replaced := res.Job.GetReplaced(); {
	case from.GetSettled():
		settleUpTo(owner, cp.GetId())
	case len(res.Job.GetCheckpoints()) == 0 && replaced.GetCheckpoint() == cp.GetId():
		owner.Replaced = replaced
	default:
		return res
	}
	s.v.jobs = slices.Clone(s.v.jobs)
	s.v.jobs[i] = owner
	return res
}

// tellOriginLosses records what a job cannot commit of the checkpoint that it begins with at the checkpoint's owner too. A job that begins
// with it later must be told: acceptance is each job's own.
func (s *State) tellOriginLosses(c *raftv1.UpdateLosses, res Result) Result {
	from := res.Job.GetFrom()
	if res.Err != nil || res.Repeated || len(res.Job.GetCheckpoints()) > 0 || !unsettled(from) {
		return res
	}
	i, cp := s.originOf(from)
	if i < 0 || cp.GetSettled() {
		return res
	}
	var lost []*jobv1.LostOutput
	for _, l := range c.GetLost() {
		if !l.GetPending() {
			l = proto.CloneOf(l)
			l.Accepted = false
			lost = append(lost, l)
		}
	}
	owner := copyRecord(s.v.jobs[i])
	if !addLost(owner, lost) {
		return res
	}
	owner.Lost = bounded(owner.Lost)
	s.v.jobs = slices.Clone(s.v.jobs)
	s.v.jobs[i] = owner
	return res
}
