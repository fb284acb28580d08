package explain

import (
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// Phase is what a job's driver is at.
type Phase uint8

// The phases.
const (
	// Ended: no driver has the job.
	Ended Phase = iota
	// Returning: TaskManagers are to come back to a new leader, which then goes on with what runs.
	Returning
	// Stopping: the workers of an attempt are to end.
	Stopping
	// BackOff: a pause before the next step.
	BackOff
	// Slots: the job needs slots.
	Slots
	// Preparing, Starting and Closing: the workers of the attempt are to answer.
	Preparing
	Starting
	Running
	Closing
)

// Facts are what is known of a job at one moment.
type Facts struct {
	Now   time.Time
	JobID string
	State jobv1.JobState
	// Target is the state that an ending job goes to.
	Target            jobv1.JobState
	Attempt, Restarts uint64

	Phase Phase
	// Since is when the phase began; Until is when it ends by itself, zero when it does not.
	Since, Until time.Time
	// LogBusy tells that the driver waits for the log of the JobManagers, so that nothing else is known of it.
	LogBusy bool

	// MissingSlots says what a job without slots lacks, and TaskManagers who has some.
	MissingSlots string
	TaskManagers []TaskManager
	// Absent are the TaskManagers that have not come back, and Undead the workers whose end has not been reported.
	Absent, Undead []string
	Workers        []Worker
	Tasks          []Task

	// RescaleFrom and RescaleTo are the numbers of slots of a job that is being rescaled; 0 when it is not.
	RescaleFrom, RescaleTo uint32

	// Stop tells that a stop was asked for.
	Stop bool
	// Settling tells that the attempt, or the one to come, only commits and fences for an ending job; SettleUntil is when that is given
	// up, and Unsettled why it has not succeeded.
	Settling    bool
	SettleUntil time.Time
	Unsettled   string

	// Periodic tells that the job takes checkpoints, every Interval.
	Periodic bool
	Interval time.Duration
	// Checkpoint is the one in progress, Commit what is completed and not yet committed everywhere; nil without one.
	Checkpoint *Checkpoint
	Commit     *Commit
	// Last is the last completed one; nil before it.
	Last *Completed
	// FailedCheckpoints is how many have failed since, and CheckpointFailure why the last of them did.
	FailedCheckpoints int
	CheckpointFailure string

	// Failure is the last failure of the job; nil without one. FailureAt is when it happened, with a monotonic reading; zero where only
	// the time that is recorded is known. Budget is what the job's policy allows.
	Failure   *jobv1.Failure
	FailureAt time.Time
	Budget    Budget

	// Lost is output that completed checkpoints list and that was not committed, and Kept the last of those that can be restored.
	Lost []*jobv1.LostOutput
	Kept uint64
	// Held are places whose readers do not see everything that is written, where that was asked for.
	Held []*jobv1.HeldOutput

	// RecordsPerSecond and Lag, in records, are -1 when unknown.
	RecordsPerSecond float64
	Lag              int64

	byName map[string]*Task // Tasks, while Explain is at work
}

// TaskManager is one with its slots.
type TaskManager struct {
	ID, Host    string
	Slots, Free int
}

// Worker is the process of the attempt on one TaskManager.
type Worker struct {
	TaskManager, Host string
	Connected         bool
	Tasks             []string
	// Answered tells that it has prepared, started or closed, whichever the phase is about.
	Answered bool
}

// Task is one task as it last reported.
type Task struct {
	// Name is its name in weir show, such as "in[0]".
	Name, TaskManager, Host string
	// Statistics are nil before the first report of the attempt; At is when they came.
	Statistics *jobv1.TaskStatistics
	At         time.Time
	// Quiet is how long after it no other report is to be expected, as nothing changes.
	Quiet time.Duration
	// PerSecond is how many records it took in lately.
	PerSecond float64
}

// Checkpoint is one in progress.
type Checkpoint struct {
	ID    uint64
	Since time.Time
	// Timeout is after how long it fails; 0 for never.
	Timeout time.Duration
	// Stage is how far it has come once every task has acknowledged.
	Stage CheckpointStage
	// Missing are the tasks that have not acknowledged, of Tasks in all.
	Missing []string
	Tasks   int
}

// CheckpointStage is what a checkpoint waits for.
type CheckpointStage uint8

// The stages.
const (
	// Collecting: tasks have not acknowledged.
	Collecting CheckpointStage = iota
	// Metadata: its metadata file is being written.
	Metadata
	// Log: the log of the JobManagers decides.
	Log
)

// Commit is a completed checkpoint whose transactions are not committed everywhere.
type Commit struct {
	Checkpoint uint64
	Since      time.Time
	// Workers are the TaskManagers that have not acknowledged.
	Workers []string
}

// Completed is a completed checkpoint.
type Completed struct {
	ID       uint64
	At       time.Time
	Duration time.Duration
}

// Budget is how many restarts a job has used up of those that its policy allows within a time.
type Budget struct {
	Used, Max int
	Window    time.Duration
}
