package grpcerr

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// Errors that cross the wire.
var (
	// ErrNotLeader: another JobManager leads; the error is a *NotLeaderError.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknownOutcome: the request may have taken effect; repeating it with the same request id is safe and tells.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrInvalid: the request can never be accepted as it is.
	ErrInvalid = errors.New("invalid request")
	// ErrJobNotFound: no job has this id or name.
	ErrJobNotFound = errors.New("job not found")
	// ErrNameTaken: another live job has the name.
	ErrNameTaken = errors.New("job name is taken")
	// ErrJobEnded: the job is ending or has ended.
	ErrJobEnded = errors.New("job has ended")
	// ErrJobNotRunning: the job must run for this, and does not now.
	ErrJobNotRunning = errors.New("job is not running")
	// ErrStopInProgress: another stop of the job is under way.
	ErrStopInProgress = errors.New("stop in progress")
	// ErrSavepointFailed: the savepoint could not be taken; the job goes on.
	ErrSavepointFailed = errors.New("savepoint failed")
	// ErrRescaleFailed: the job was not rescaled and goes on as it was.
	ErrRescaleFailed = errors.New("rescale failed")
	// ErrArtifactNotFound: the job binary has not been uploaded.
	ErrArtifactNotFound = errors.New("job binary not found")
	// ErrArtifactCorrupt: the uploaded bytes do not have the announced hash.
	ErrArtifactCorrupt = errors.New("job binary is corrupt")
	// ErrNoTaskManager: no TaskManager is connected that could do it.
	ErrNoTaskManager = errors.New("no TaskManager is connected")
	// ErrRefused: a TaskManager may not join this cluster.
	ErrRefused = errors.New("TaskManager refused")
	// ErrStaleTerm: the other side has seen a newer leader.
	ErrStaleTerm = errors.New("leader is stale")
	// ErrStorage: checkpoint storage cannot be reached.
	ErrStorage = errors.New("checkpoint storage failed")
	// ErrUnauthenticated: the caller has not shown who it is.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden: the caller is known and may not do this.
	ErrForbidden = errors.New("not allowed")
)

// table maps errors to codes and to the reason that names them on the wire. Reasons are never changed or reused.
var table = []struct {
	err    error
	code   codes.Code
	reason string
}{
	{ErrNotLeader, codes.FailedPrecondition, "NOT_LEADER"},
	{ErrUnknownOutcome, codes.Unavailable, "UNKNOWN_OUTCOME"},
	{ErrInvalid, codes.InvalidArgument, "INVALID"},
	{ErrJobNotFound, codes.NotFound, "JOB_NOT_FOUND"},
	{ErrNameTaken, codes.AlreadyExists, "NAME_TAKEN"},
	{ErrJobEnded, codes.FailedPrecondition, "JOB_ENDED"},
	{ErrJobNotRunning, codes.FailedPrecondition, "JOB_NOT_RUNNING"},
	{ErrStopInProgress, codes.FailedPrecondition, "STOP_IN_PROGRESS"},
	{ErrSavepointFailed, codes.Aborted, "SAVEPOINT_FAILED"},
	{ErrRescaleFailed, codes.Aborted, "RESCALE_FAILED"},
	{ErrArtifactNotFound, codes.NotFound, "ARTIFACT_NOT_FOUND"},
	{ErrArtifactCorrupt, codes.DataLoss, "ARTIFACT_CORRUPT"},
	{ErrNoTaskManager, codes.FailedPrecondition, "NO_TASKMANAGER"},
	{ErrRefused, codes.PermissionDenied, "REFUSED"},
	{ErrStaleTerm, codes.FailedPrecondition, "STALE_TERM"},
	{ErrStorage, codes.Internal, "STORAGE"},
	{ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED"},
	{ErrForbidden, codes.PermissionDenied, "FORBIDDEN"},
}

// NotLeaderError tells who leads. The address is empty when nobody is known to.
type NotLeaderError struct {
	LeaderID      string
	LeaderAddress string // host:port of the leader's gRPC listener
	// Trouble is why the JobManager that says so does not take part; empty when all is well with it. It is told in the text only.
	Trouble string
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	switch {
	case e.LeaderID == "" && e.Trouble != "":
		return e.Trouble
	case e.LeaderID == "":
		return "this JobManager does not lead, and no leader is known at the moment"
	case e.LeaderAddress == "":
		return "this JobManager does not lead; the leader is " + e.LeaderID
	}
	return "this JobManager does not lead; the leader is " + e.LeaderID + " at " + e.LeaderAddress
}

// Is reports whether target is ErrNotLeader.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }
