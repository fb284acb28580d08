package fsm

import (
	"slices"
	"strings"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// copyRecord copies a record with its slices, and shares the messages they refer to. A deep copy would duplicate the graph at every
// checkpoint.
func copyRecord(r *raftv1.JobRecord) *raftv1.JobRecord {
	return &raftv1.JobRecord{
		Id:                   r.GetId(),
		RequestId:            r.GetRequestId(),
		Name:                 r.GetName(),
		Graph:                r.GetGraph(),
		ArtifactSha256:       r.GetArtifactSha256(),
		Args:                 slices.Clone(r.GetArgs()),
		Parallelism:          r.GetParallelism(),
		AllowDroppedState:    r.GetAllowDroppedState(),
		From:                 r.GetFrom(),
		State:                r.GetState(),
		Target:               r.GetTarget(),
		Attempt:              r.GetAttempt(),
		Placements:           slices.Clone(r.GetPlacements()),
		Started:              r.GetStarted(),
		Restarts:             r.GetRestarts(),
		CreatedAtMs:          r.GetCreatedAtMs(),
		EndedAtMs:            r.GetEndedAtMs(),
		Checkpoints:          slices.Clone(r.GetCheckpoints()),
		Garbage:              slices.Clone(r.GetGarbage()),
		NextCheckpoint:       r.GetNextCheckpoint(),
		Unfenced:             slices.Clone(r.GetUnfenced()),
		Failures:             slices.Clone(r.GetFailures()),
		Savepoints:           slices.Clone(r.GetSavepoints()),
		Prepared:             r.GetPrepared(),
		Unsettled:            r.GetUnsettled(),
		CompletedCheckpoints: r.GetCompletedCheckpoints(),
		Restore:              r.GetRestore(),
		StopSavepointDir:     r.GetStopSavepointDir(),
		StopRequestId:        r.GetStopRequestId(),
		LastRecoveryMs:       r.GetLastRecoveryMs(),
		Token:                r.GetToken(),
		SettlingAttempt:      r.GetSettlingAttempt(),
		RestartHistory:       slices.Clone(r.GetRestartHistory()),
		EndRequestId:         r.GetEndRequestId(),
		UnfencedWorkers:      slices.Clone(r.GetUnfencedWorkers()),
		Replaced:             r.GetReplaced(),
		Lost:                 slices.Clone(r.GetLost()),
		Rescale:              r.GetRescale(),
		Rescales:             slices.Clone(r.GetRescales()),
		OperatorParallelism:  r.GetOperatorParallelism(),
		AutoParallelism:      r.GetAutoParallelism(),
	}
}

// stateName is a state as people read it, for example "running".
func stateName(s jobv1.JobState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "JOB_STATE_"))
}
