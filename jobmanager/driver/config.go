package driver

import (
	"context"
	"log/slog"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
	"github.com/weir-stream/weir/statebackend/blob"
)

// Log is the replicated log as a driver uses it.
type Log interface {
	// Propose returns what the state machine made of the command. Its error is raftnode.ErrNotLeader or raftnode.ErrUnknownOutcome.
	Propose(ctx context.Context, cmd *raftv1.Command) (fsm.Result, error)
	// Barrier returns nil when everything before it is applied and this member still leads.
	Barrier(ctx context.Context) error
	// View returns the present state.
	View() fsm.View
	// Level returns the command level that every member understands.
	Level() uint32
}

// Sessions are the sessions of TaskManagers.
type Sessions interface {
	Send(tmID string, msg *clusterv1.SessionResponse) error
	TaskManagers() []registry.TaskManager
}

// Config describes a manager. The durations are those of the JobManager's configuration.
type Config struct {
	ClusterID string
	Log       Log
	Bucket    blob.Bucket
	// OpenBucket opens the target of a savepoint.
	OpenBucket func(ctx context.Context, url string) (blob.Bucket, error)

	// Plan makes the graph of a job for another parallelism; nil leaves every job as it is.
	Plan func(ctx context.Context, job *clusterv1.PlanJob) (*jobv1.Graph, error)
	// AutoSettle is how long the share of a job whose parallelism the cluster chooses must have been the same before the job goes to it.
	AutoSettle time.Duration

	RegisterGrace  time.Duration
	SlotsWait      time.Duration
	CancelDeadline time.Duration
	PrepareWarning time.Duration
	PrepareTimeout time.Duration
	SettleBudget   time.Duration
	// ArtifactAge is how long a job binary that no job needs stays on storage; default 1 h. ArtifactEvery is how often they are looked
	// through; default a sixth of that.
	ArtifactAge, ArtifactEvery time.Duration

	// FenceEvery is the time between two fencings of former attempts whose workers are not proven dead; default 30 s. SettleAgain is the
	// first pause before a job that ended with unsettled transactions is tried again; default 5 s.
	FenceEvery, SettleAgain time.Duration

	Metrics *Metrics
	Logger  *slog.Logger
}

const (
	// stopSlack is the time beyond the cancel deadline in which the end of killed workers must have been reported.
	stopSlack = time.Second
	// stopGrace is how long a new leader waits for TaskManagers whose workers it wants stopped: one that comes later is told then.
	stopGrace = time.Second
	// closeTimeout bounds the clean close of a finished job's workers; afterwards the job is settled like a failed one.
	closeTimeout = 30 * time.Second
	// resultRetry is the pause before a rejected or undecided step is tried again.
	resultRetry = time.Second
	// cleanRetry is the pause before files that could not be deleted are tried again.
	cleanRetry = 30 * time.Second
	// storageTimeout bounds one access to checkpoint storage.
	storageTimeout = time.Minute
	// exportTimeout bounds the export of a savepoint.
	exportTimeout = 10 * time.Minute
	// reserveIDs is how many checkpoint ids are reserved at a time: an entry of the log every so many checkpoints, and a gap of at
	// most as many in the ids after a change of leaders.
	reserveIDs = 100
	// maxEnded is how many finished and canceled jobs are remembered; older ones are forgotten.
	maxEnded = 200
	// rateWindow is the span over which rates are taken.
	rateWindow = 5 * time.Second
)
