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
	// ErrHangs: a write to the disk, or something else that must be quick, did not come back in time.
	ErrHangs = errors.New("raft hangs")
	// ErrDisk: a write to the disk failed, and not for want of space.
	ErrDisk = errors.New("write to the raft log failed")
	// ErrDamaged: a part of the data directory is missing.
	ErrDamaged = errors.New("data directory is damaged")
	// ErrQuorum: the change would leave the cluster without a majority.
	ErrQuorum = errors.New("the cluster would lose its majority")
	// ErrNoSuccessor: no other voter answers.
	ErrNoSuccessor = errors.New("no other member can take over")
	// errWiped: it is known to the cluster, and its directory is empty.
	errWiped = errors.New("has no data although it is a member: the leader lets it in, and it votes once it has caught up")
	// errStarting: the configuration is not known yet.
	errStarting = errors.New("raft is starting")
	// errSilent: this member must not talk to the others now.
	errSilent = errors.New("this member does not take part at the moment")
)
