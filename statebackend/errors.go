package statebackend

import "errors"

// Errors of a backend, to be tested with errors.Is.
var (
	// ErrSchema: restored state does not fit the declared one. A restart cannot mend it.
	ErrSchema = errors.New("restored state does not fit the job")
	// ErrDroppedState: restored state is not declared any more, and dropping it was not allowed. It comes with ErrSchema.
	ErrDroppedState = errors.New("restored state is not declared by the job")
	// ErrForeignKey: a key was used in a subtask that does not own it, so a key function is not deterministic.
	ErrForeignKey = errors.New("key belongs to another subtask")
	// ErrSuperseded: a later checkpoint was completed before this frozen state was written.
	ErrSuperseded = errors.New("checkpoint is superseded")
)
