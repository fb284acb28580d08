package faultpoint

// Point is a place in the code. Each is used in exactly one place, and described in docs/design.
type Point string

// The points of a leading JobManager. "Sent" is on its way: a goroutine that hangs there lets it leave.
const (
	// AttemptLogged: the log has the new attempt, no worker is ordered.
	AttemptLogged Point = "jm.attempt-logged"
	// WorkerOrdered: one more worker of the attempt is ordered, in the order of TaskManager ids.
	WorkerOrdered Point = "jm.worker-ordered"
	// StartLogged: every worker has prepared and the log says that the attempt goes, none is told.
	StartLogged Point = "jm.start-logged"
	// StartSent: one more worker is told to start.
	StartSent Point = "jm.start-sent"
	// TriggerSent: one more worker with sources is told of a checkpoint.
	TriggerSent Point = "jm.trigger-sent"
	// AllAcknowledged: the last acknowledgement of a checkpoint has arrived, its metadata file is not written.
	AllAcknowledged Point = "jm.all-acknowledged"
	// CompletionLogged: the log has the completion of a checkpoint, no worker knows.
	CompletionLogged Point = "jm.completion-logged"
	// ExportDue: the checkpoint of a savepoint is complete and pinned, nothing is copied.
	ExportDue Point = "jm.export-due"
	// SavepointRecorded: the savepoint of a stop is in the log, the end of the job is not.
	SavepointRecorded Point = "jm.savepoint-recorded"
	// TakenOver: every worker of a former leader's attempt is reported, none is told anything.
	TakenOver Point = "jm.taken-over"
	// EndLogged: the log has the end of the job, no worker is stopped.
	EndLogged Point = "jm.end-logged"
	// ResultDue: the workers of an ending job are stopped and its transactions settled, the result is not in the log.
	ResultDue Point = "jm.result-due"
)
