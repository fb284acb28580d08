package fsm

import (
	"fmt"
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// Bounds of the histories kept for each job.
const (
	maxFailures   = 20
	maxSavepoints = 100
)

func (s *State) createJob(c *raftv1.CreateJob) Result {
	j := c.GetJob()
	if j.GetId() == "" || j.GetName() == "" || j.GetGraph() == nil {
		return Result{Err: fmt.Errorf("a job needs an id, a name and a graph: %w", ErrInvalid)}
	}
	if r, ok := s.v.ByRequest(j.GetRequestId()); ok {
		return Result{Job: r, Repeated: true}
	}
	if r, ok := s.v.Job(j.GetId()); ok {
		return Result{Job: r, Err: fmt.Errorf("job %s: %w", j.GetId(), ErrJobExists)}
	}
	if r, ok := s.v.Live(j.GetName()); ok {
		return Result{Job: r, Err: fmt.Errorf("job %s: %w, whose id is %s", j.GetName(), ErrNameTaken, r.GetId())}
	}
	from, err := s.begin(j.GetFrom())
	if err != nil {
		return Result{Err: err}
	}
	r := &raftv1.JobRecord{
		Id:             j.GetId(),
		RequestId:      j.GetRequestId(),
		Name:           j.GetName(),
		Graph:          j.GetGraph(),
		ArtifactSha256: j.GetArtifactSha256(),
		Args:           j.GetArgs(),
		Parallelism:    j.GetParallelism(),

		OperatorParallelism: j.GetOperatorParallelism(),
		AutoParallelism:     j.GetAutoParallelism(),

		AllowDroppedState: j.GetAllowDroppedState(),
		From:              from,
		Lost:              j.GetLost(),
		State:             jobv1.JobState_JOB_STATE_CREATED,
		CreatedAtMs:       j.GetCreatedAtMs(),
		// Ids grow across jobs too, so that a file's age relative to the restored state shows in its checkpoint.
		NextCheckpoint: j.GetFrom().GetCheckpoint() + 1,
	}
	s.v.jobs = append(slices.Clone(s.v.jobs), r)
	return Result{Job: r}
}

// live rejects commands about a job that has ended or is about to.
func live(r *raftv1.JobRecord) error {
	switch {
	case Terminal(r.GetState()):
		return fmt.Errorf("%w: it is %s", ErrJobEnded, stateName(r.GetState()))
	case r.GetState() == jobv1.JobState_JOB_STATE_SETTLING:
		return fmt.Errorf("%w: it is going to be %s", ErrJobEnding, stateName(r.GetTarget()))
	}
	return nil
}

func endJob(c *raftv1.EndJob) change {
	return func(r *raftv1.JobRecord) error {
		if c.GetRequestId() != "" && c.GetRequestId() == r.GetEndRequestId() {
			return errRepeated
		}
		if !Terminal(c.GetTarget()) {
			return fmt.Errorf("%s is no state to end in: %w", stateName(c.GetTarget()), ErrInvalid)
		}
		if err := live(r); err != nil {
			return err
		}
		settle(r, c.GetTarget())
		r.EndRequestId = c.GetRequestId()
		recordFailure(r, c.GetFailure())
		return nil
	}
}

// settle bars further completions.
func settle(r *raftv1.JobRecord, target jobv1.JobState) {
	r.State = jobv1.JobState_JOB_STATE_SETTLING
	r.Target = target
	dropRescale(r, "the job is going to be "+stateName(target), 0)
}

func recordResult(c *raftv1.RecordResult) change {
	return func(r *raftv1.JobRecord) error {
		state := c.GetState()
		if state == jobv1.JobState_JOB_STATE_UNSPECIFIED {
			state = r.GetTarget()
		}
		switch {
		case Terminal(r.GetState()) && r.GetState() == state:
			return errRepeated
		case Terminal(r.GetState()):
			return live(r)
		case r.GetState() != jobv1.JobState_JOB_STATE_SETTLING:
			return ErrNotEnding
		case !Terminal(state):
			return fmt.Errorf("%s is no result: %w", stateName(state), ErrInvalid)
		}
		if c.GetUnsettled() != "" {
			retire(r)
		} else {
			r.Replaced = nil
			committed(r, allCheckpoints)
		}
		r.State = state
		r.EndedAtMs = c.GetAtMs()
		r.Unsettled = c.GetUnsettled()
		r.Started, r.Token, r.Placements = false, "", nil
		collect(r)
		return nil
	}
}

func (s *State) forgetJob(c *raftv1.ForgetJob) Result {
	res := s.update(c.GetJobId(), func(r *raftv1.JobRecord) error {
		pinned := func(cp *raftv1.CompletedCheckpoint) bool { return cp.GetPinned() }
		switch {
		case !Terminal(r.GetState()):
			return fmt.Errorf("%w: it is %s; cancel it first", ErrJobLive, stateName(r.GetState()))
		case len(r.GetGarbage()) > 0 || slices.ContainsFunc(r.GetCheckpoints(), pinned):
			return ErrGarbageLeft
		}
		return nil
	})
	if res.Err == nil {
		s.v.jobs = slices.DeleteFunc(s.v.jobs, func(r *raftv1.JobRecord) bool { return r == res.Job })
	}
	return res
}

func requestStop(c *raftv1.RequestStop) change {
	return func(r *raftv1.JobRecord) error {
		id := c.GetRequestId()
		switch {
		case id == "":
			return fmt.Errorf("a stop needs a request id: %w", ErrInvalid)
		case id == r.GetStopRequestId() || savepointOf(r, id) != nil:
			return errRepeated
		}
		if err := live(r); err != nil {
			return err
		}
		if r.GetStopRequestId() != "" {
			return ErrStopping
		}
		dropRescale(r, "a stop of the job was asked for", 0)
		r.StopRequestId = id
		r.StopSavepointDir = c.GetSavepointDir()
		return nil
	}
}

// clearStop keeps the outcome under the stop's request id, so that the request is never carried out a second time.
func clearStop(c *raftv1.ClearStop) change {
	return func(r *raftv1.JobRecord) error {
		if err := live(r); err != nil {
			return err
		}
		if r.GetStopRequestId() == "" {
			return ErrNotStopping
		}
		if savepointOf(r, r.GetStopRequestId()) == nil {
			addSavepoint(r, &raftv1.Savepoint{RequestId: r.GetStopRequestId(), Error: c.GetError()})
		}
		r.StopRequestId, r.StopSavepointDir = "", ""
		return nil
	}
}

func recordSavepoint(c *raftv1.RecordSavepoint) change {
	return func(r *raftv1.JobRecord) error {
		sp := c.GetSavepoint()
		switch {
		case sp.GetRequestId() == "":
			return fmt.Errorf("a savepoint needs a request id: %w", ErrInvalid)
		case savepointOf(r, sp.GetRequestId()) != nil:
			return errRepeated
		}
		addSavepoint(r, sp)
		return nil
	}
}

func savepointOf(r *raftv1.JobRecord, requestID string) *raftv1.Savepoint {
	for _, sp := range r.GetSavepoints() {
		if sp.GetRequestId() == requestID {
			return sp
		}
	}
	return nil
}

func addSavepoint(r *raftv1.JobRecord, sp *raftv1.Savepoint) {
	r.Savepoints = newest(append(r.Savepoints, sp), maxSavepoints)
}

func recordFailure(r *raftv1.JobRecord, f *jobv1.Failure) {
	if f != nil {
		r.Failures = newest(append(r.Failures, f), maxFailures)
	}
}

func newest[T any](s []T, n int) []T { return s[max(0, len(s)-n):] }
