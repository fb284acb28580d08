package raftnode

import "errors"

// Errors of a node.
var (
	// ErrNotLeader: this member does not lead; the proposal is not in the log and never will be.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnknownOutcome: the proposal may be in the log or not.
	ErrUnknownOutcome = errors.New("outcome of the log write is unknown")
	// ErrInUse: another process has the data directory open.
	ErrInUse = errors.New("data directory is in use by another process")
	// ErrLogHangs: a write to the log did not come back in time.
	ErrLogHangs = errors.New("write to the raft log hangs")
	// errStarting: the configuration is not known yet.
	errStarting = errors.New("raft is starting")
)
