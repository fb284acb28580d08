package fsm

import (
	"slices"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// View is a consistent picture of the state at one log position. It never changes, costs nothing to take, and may be used from any
// goroutine. Everything reached through it is shared and read-only.
type View struct {
	clusterID string
	index     uint64
	jobs      []*raftv1.JobRecord // in the order of their creation
	members   []*raftv1.MemberLevel
}

// ClusterID returns the cluster's id; empty before InitCluster.
func (v View) ClusterID() string { return v.clusterID }

// Index returns the log position of the last command applied; 0 when none was, or when it came from a snapshot.
func (v View) Index() uint64 { return v.index }

// Jobs returns all jobs in the order of their creation, ended ones included. The slice may be kept, but not modified.
func (v View) Jobs() []*raftv1.JobRecord { return slices.Clip(v.jobs) }

// Members returns the reported levels, sorted by id. The slice may be kept, but not modified.
func (v View) Members() []*raftv1.MemberLevel { return slices.Clip(v.members) }

// Job returns the job with this id.
func (v View) Job(id string) (*raftv1.JobRecord, bool) {
	return v.find(func(r *raftv1.JobRecord) bool { return r.GetId() == id })
}

// Live returns the job that has this name and has not ended.
func (v View) Live(name string) (*raftv1.JobRecord, bool) {
	return v.find(func(r *raftv1.JobRecord) bool { return r.GetName() == name && !Terminal(r.GetState()) })
}

// ByRequest returns the job that was created with this request id.
func (v View) ByRequest(requestID string) (*raftv1.JobRecord, bool) {
	return v.find(func(r *raftv1.JobRecord) bool { return requestID != "" && r.GetRequestId() == requestID })
}

func (v View) find(match func(*raftv1.JobRecord) bool) (*raftv1.JobRecord, bool) {
	if i := slices.IndexFunc(v.jobs, match); i >= 0 {
		return v.jobs[i], true
	}
	return nil, false
}

// Terminal reports whether a state is final.
func Terminal(s jobv1.JobState) bool {
	switch s {
	case jobv1.JobState_JOB_STATE_FINISHED, jobv1.JobState_JOB_STATE_FAILED,
		jobv1.JobState_JOB_STATE_CANCELED, jobv1.JobState_JOB_STATE_STOPPED:
		return true
	}
	return false
}

// LastCheckpoint returns the newest completed checkpoint that the job retains.
func LastCheckpoint(r *raftv1.JobRecord) (*raftv1.CompletedCheckpoint, bool) {
	if n := len(r.GetCheckpoints()); n > 0 {
		return r.GetCheckpoints()[n-1], true
	}
	return nil, false
}
