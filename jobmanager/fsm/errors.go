package fsm

import "errors"

// Rejections: a command that meets one has changed nothing. Test with errors.Is; the error's text names the job.
var (
	// ErrUnknownJob: there is no job with this id.
	ErrUnknownJob = errors.New("unknown job")
	// ErrJobExists: another job has the id.
	ErrJobExists = errors.New("job id is taken")
	// ErrNameTaken: a live job has the name.
	ErrNameTaken = errors.New("job name is taken by a live job")
	// ErrInvalid: the command makes no sense whatever the state.
	ErrInvalid = errors.New("invalid command")
	// ErrStaleAttempt: the attempt is not the current one, or a new one is not the next.
	ErrStaleAttempt = errors.New("stale attempt")
	// ErrNotStarted: the attempt has not been started.
	ErrNotStarted = errors.New("attempt is not started")
	// ErrBeingSettled: another job is about to settle the transactions of the checkpoint.
	ErrBeingSettled = errors.New("transactions of the checkpoint are being settled")
	// ErrSettled: the job has ended with nothing unsettled.
	ErrSettled = errors.New("job is settled")
	// ErrStarted: the attempt has been started, so that what it restored is committed.
	ErrStarted = errors.New("attempt is started")
	// ErrCheckpointNotNewer: a checkpoint with this or a higher id is completed.
	ErrCheckpointNotNewer = errors.New("checkpoint is not newer than the last completed one")
	// ErrNotReserved: the checkpoint id was never reserved.
	ErrNotReserved = errors.New("checkpoint id is not reserved")
	// ErrAlreadyReserved: ids up to the limit have been reserved before.
	ErrAlreadyReserved = errors.New("checkpoint ids are already reserved")
	// ErrMissingOrigin: the checkpoint needs files that no retained checkpoint protects.
	ErrMissingOrigin = errors.New("checkpoint needs files of a checkpoint that is no longer retained")
	// ErrUnknownCheckpoint: the job does not retain this checkpoint.
	ErrUnknownCheckpoint = errors.New("checkpoint is not retained")
	// ErrJobEnding: the job is settling towards a terminal state.
	ErrJobEnding = errors.New("job is ending")
	// ErrJobEnded: the job has a terminal state.
	ErrJobEnded = errors.New("job has ended")
	// ErrJobLive: the job has not ended.
	ErrJobLive = errors.New("job has not ended")
	// ErrNotEnding: a settling attempt or a result is only for a job that is ending.
	ErrNotEnding = errors.New("job is not ending")
	// ErrStopping: a stop with another request id is under way.
	ErrStopping = errors.New("job is already stopping")
	// ErrRescaling: a rescale with another request id is under way.
	ErrRescaling = errors.New("job is already being rescaled")
	// ErrRescaled: the rescale was planned for another graph than the job has by now.
	ErrRescaled = errors.New("job was rescaled meanwhile")
	// ErrNotStopping: no stop is under way.
	ErrNotStopping = errors.New("job is not stopping")
	// ErrGarbageLeft: files of the job wait for their deletion.
	ErrGarbageLeft = errors.New("job still has files to delete")
	// ErrFormat: a snapshot has a format version that this program does not read.
	ErrFormat = errors.New("unknown snapshot format")
)
