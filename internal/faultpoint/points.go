package faultpoint

// Point is a place in the code. Each is used in exactly one place, and described in docs/design.
type Point string

// The points of a leading JobManager. "Sent" is on its way: a goroutine that hangs there lets it leave.
const (
	// FailureLogged: the log has the failure of an attempt, the next one is not begun.
	FailureLogged Point = "jm.failure-logged"
	// AttemptLogged: the log has the new attempt, no worker is ordered.
	AttemptLogged Point = "jm.attempt-logged"
	// WorkerOrdered: one more worker of the attempt is ordered, in the order of TaskManager ids.
	WorkerOrdered Point = "jm.worker-ordered"
	// ReplacementLogged: the log has the transactions with which a worker replaces lost ones, the worker is not told.
	ReplacementLogged Point = "jm.replacement-logged"
	// StartLogged: every worker has prepared and the log says that the attempt goes, none is told.
	StartLogged Point = "jm.start-logged"
	// StartSent: one more worker is told to start.
	StartSent Point = "jm.start-sent"
	// AllStarted: every worker has fenced its share and runs, the log does not know.
	AllStarted Point = "jm.all-started"
	// FencedLogged: the log has it that former attempts are fenced.
	FencedLogged Point = "jm.fenced-logged"
	// IDsReserved: the log has a block of checkpoint ids, none is used.
	IDsReserved Point = "jm.ids-reserved"
	// TriggerSent: one more worker with sources is told of a checkpoint.
	TriggerSent Point = "jm.trigger-sent"
	// AckReceived: one more acknowledgement of a checkpoint has arrived, nothing is made of it.
	AckReceived Point = "jm.ack-received"
	// AllAcknowledged: the last acknowledgement of a checkpoint has arrived, its metadata file is not written.
	AllAcknowledged Point = "jm.all-acknowledged"
	// MetadataWritten: the metadata file of a checkpoint is durable, its completion is not proposed.
	MetadataWritten Point = "jm.metadata-written"
	// CompletionDue: the completion of a checkpoint is about to go to the log.
	CompletionDue Point = "jm.completion-due"
	// CompletionLogged: the log has the completion of a checkpoint, no worker knows.
	CompletionLogged Point = "jm.completion-logged"
	// NoticeSent: one more worker is told that a checkpoint is complete.
	NoticeSent Point = "jm.notice-sent"
	// CommitAcked: one more worker has said that its commits of a checkpoint are done, nothing is made of it.
	CommitAcked Point = "jm.commit-acked"
	// SettledLogged: the log has it that all commits of a checkpoint are done.
	SettledLogged Point = "jm.settled-logged"
	// FilesDeleted: the files that a dropped checkpoint alone needed are deleted, its metadata is not.
	FilesDeleted Point = "jm.files-deleted"
	// GarbageDeleted: all of a dropped checkpoint is deleted, the log still lists it.
	GarbageDeleted Point = "jm.garbage-deleted"
	// GarbageDropped: the log has forgotten a deleted checkpoint.
	GarbageDropped Point = "jm.garbage-dropped"
	// ExportDue: the checkpoint of a savepoint is complete and pinned, nothing is copied.
	ExportDue Point = "jm.export-due"
	// SavepointRecorded: the savepoint of a stop is in the log, the end of the job is not.
	SavepointRecorded Point = "jm.savepoint-recorded"
	// TakenOver: every worker of a former leader's attempt is reported, none is told anything.
	TakenOver Point = "jm.taken-over"
	// EndLogged: the log has the end of the job, no worker is stopped.
	EndLogged Point = "jm.end-logged"
	// RescaleLogged: the log has the graph of the next attempt, the present one runs on and no checkpoint is triggered for it.
	RescaleLogged Point = "jm.rescale-logged"
	// HandoverDue: the checkpoint for the next attempt is complete and committed, no worker of the present one is stopped.
	HandoverDue Point = "jm.handover-due"
	// HandoverStopped: the workers of the present attempt are stopped, the next one is not in the log.
	HandoverStopped Point = "jm.handover-stopped"
	// ResultDue: the workers of an ending job are stopped and its transactions settled, the result is not in the log.
	ResultDue Point = "jm.result-due"
)

// The points of a TaskManager.
const (
	// OrderReceived: the order to start a worker has arrived, nothing is done about it.
	OrderReceived Point = "tm.order-received"
	// WorkerLaunched: the worker's process runs, its commands are not sent.
	WorkerLaunched Point = "tm.worker-launched"
	// FetchDue: a worker asks for a file of checkpoint storage; an error is storage's.
	FetchDue Point = "tm.fetch-due"
	// Fetched: the file is here and verified, the worker is not told.
	Fetched Point = "tm.fetched"
	// UploadDue: a worker asks to have a state file uploaded; an error is storage's.
	UploadDue Point = "tm.upload-due"
	// Uploaded: the file is durable on storage, the worker is not told.
	Uploaded Point = "tm.uploaded"
	// AckAtTaskManager: a task's acknowledgement has arrived from the worker, the leader is not told.
	AckAtTaskManager Point = "tm.ack-received"
	// AckRelayed: a task's acknowledgement is sent to the leader.
	AckRelayed Point = "tm.ack-sent"
	// NoticeAtTaskManager: the notice of a completed checkpoint has arrived, the worker is not told.
	NoticeAtTaskManager Point = "tm.notice-received"
	// NoticeRelayed: the notice is sent to the worker.
	NoticeRelayed Point = "tm.notice-sent"
	// CommitAckAtTaskManager: the worker has said that its commits are done, the leader is not told.
	CommitAckAtTaskManager Point = "tm.commit-ack-received"
)

// The points of whoever writes to checkpoint storage: a TaskManager, or a leading JobManager.
const (
	// PutDue: an object is about to be written; an error is storage's.
	PutDue Point = "storage.put-due"
	// PutSynced: its content is durable, and has no name yet.
	PutSynced Point = "storage.put-synced"
	// PutNamed: it has its name, which a crash of the machine may still undo.
	PutNamed Point = "storage.put-named"
	// OpenDue: an object is about to be read; an error is storage's.
	OpenDue Point = "storage.open-due"
	// DeleteDue: an object is about to be deleted; an error is storage's.
	DeleteDue Point = "storage.delete-due"
)

// The points of a worker, in the order of its life. Those of sinks and state are a local run's too.
const (
	// RestoreDue: the worker is to restore a checkpoint and has read nothing.
	RestoreDue Point = "worker.restore-due"
	// RestoreRead: the checkpoint's metadata is read, no operator is built.
	RestoreRead Point = "worker.restore-read"
	// IDInitDue: a transactional id is about to be initialised for this attempt's own use.
	IDInitDue Point = "kafka.id-init-due"
	// IDInitialised: the broker has initialised it, the sink has not taken note.
	IDInitialised Point = "kafka.id-initialised"
	// RecoverDue: a sink's restored transactions are about to be committed; an error is one of the commit.
	RecoverDue Point = "sink.recover-due"
	// RecoveredOne: one restored transaction is committed, others may not be.
	RecoveredOne Point = "kafka.recovered-one"
	// Recovered: all restored transactions of a sink's subtask are committed, nobody is told.
	Recovered Point = "sink.recovered"
	// Rewritten: lost output of a sink's subtask is written again and prepared, nobody is told.
	Rewritten Point = "sink.rewritten"
	// RewriteCommitDue: the log has the transaction that replaces lost ones, and it is about to be committed; an error is one of the
	// commit.
	RewriteCommitDue Point = "sink.rewrite-commit-due"
	// RewriteCommitted: it is committed, nobody is told.
	RewriteCommitted Point = "sink.rewrite-committed"
	// PreparedDue: every task is open, the leader is not told that the worker has prepared.
	PreparedDue Point = "worker.prepared-due"
	// FenceDue: the ids of former attempts are about to be fenced; an error is one of the fencing.
	FenceDue Point = "sink.fence-due"
	// FencedOne: one id of a former attempt is initialised, others may not be.
	FencedOne Point = "kafka.fenced-one"
	// Fenced: a sink's subtask has fenced its share.
	Fenced Point = "sink.fenced"
	// StartedDue: the worker's share is fenced and its channels are connected, nobody is told and no task runs.
	StartedDue Point = "worker.started-due"
	// TriggerReceived: a source task is to take a checkpoint and has not begun.
	TriggerReceived Point = "task.trigger-received"
	// BarrierSent: a source task has taken its snapshot and sent the barrier on.
	BarrierSent Point = "task.barrier-sent"
	// Aligning: a task has met the barrier on some of its inputs and holds them back.
	Aligning Point = "task.aligning"
	// Aligned: a task has met the barrier on all of its inputs, its snapshot is not begun.
	Aligned Point = "task.aligned"
	// PrepareDue: a sink is about to flush and prepare its transaction; an error is one of the flush.
	PrepareDue Point = "sink.prepare-due"
	// Flushed: the broker has every record of the transaction, it has no committable.
	Flushed Point = "kafka.flushed"
	// Prepared: the transaction is prepared, no snapshot lists it.
	Prepared Point = "sink.txn-prepared"
	// StateDue: state is frozen, nothing of it is written; an error is one of the local disk.
	StateDue Point = "state.write-due"
	// StateWritten: a state file is written on the local disk, and not uploaded.
	StateWritten Point = "state.written"
	// StateUploaded: a state file is uploaded, the task has not acknowledged.
	StateUploaded Point = "state.uploaded"
	// AckDue: all of a task's snapshot is durable, it has not acknowledged.
	AckDue Point = "task.ack-due"
	// AckSent: a task's acknowledgement is sent to the TaskManager.
	AckSent Point = "worker.ack-sent"
	// NoticeReceived: the worker is told that a checkpoint is complete, no task knows.
	NoticeReceived Point = "worker.notice-received"
	// CommitDue: a sink is about to commit a transaction that a completed checkpoint covers; an error leaves it undecided.
	CommitDue Point = "sink.commit-due"
	// OwnCommitDue: the client that wrote a transaction is about to commit it; an error leaves it undecided.
	OwnCommitDue Point = "kafka.own-commit-due"
	// EndTxnDue: a transaction is about to be committed by its identity; an error is no answer.
	EndTxnDue Point = "kafka.endtxn-due"
	// EndTxnSent: the request that ends a transaction is sent to the broker.
	EndTxnSent Point = "kafka.endtxn-sent"
	// EndTxnAnswered: the broker's answer to it has arrived, nothing is made of it.
	EndTxnAnswered Point = "kafka.endtxn-answered"
	// Committed: a transaction is committed, the sink has not taken note.
	Committed Point = "sink.committed"
	// CommitAckSent: that all commits of a checkpoint are done is sent to the TaskManager.
	CommitAckSent Point = "worker.commit-ack-sent"
	// IDReleased: the id of a committed transaction that no completed checkpoint lists is free to be used again.
	IDReleased Point = "kafka.id-released"
)

// The points of a program that runs its job by itself, where a file stands for the log.
const (
	// LocalAttemptRecorded: the record has the new attempt, nothing is prepared.
	LocalAttemptRecorded Point = "local.attempt-recorded"
	// LocalMetadataWritten: the metadata file of a checkpoint is durable, its completion is not recorded.
	LocalMetadataWritten Point = "local.metadata-written"
	// LocalCompletionRecorded: the completion of a checkpoint is recorded, no sink knows.
	LocalCompletionRecorded Point = "local.completion-recorded"
	// LocalFencedRecorded: the tasks run, and it is recorded that former attempts are fenced.
	LocalFencedRecorded Point = "local.fenced-recorded"
)
