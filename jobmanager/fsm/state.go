package fsm

import (
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
)

// Level is the command level of this program: the highest command number it understands.
const Level = 18

// Result is the answer to one command; on the leader it is the response of the Raft future.
type Result struct {
	// Err is nil or wraps one of the package's errors; the command has then changed nothing.
	Err error
	// Job is the job's record after the command, also when it was rejected; nil for commands about no job, or without one. It is
	// read-only.
	Job *raftv1.JobRecord
	// Repeated tells that the command's request id was known: the command has changed nothing, and Job is the one of the first time.
	Repeated bool
	// FirstID is the first of the ids that a ReserveCheckpointIDs reserved.
	FirstID uint64
}

// State is the state machine. The zero value is the empty state.
type State struct {
	v View
}

// View returns the present state.
func (s *State) View() View { return s.v }

// Apply carries out the command at log position index. It panics when the program does not know the command.
func (s *State) Apply(index uint64, cmd *raftv1.Command) Result {
	panic("not written yet")
}

// Snapshot returns the whole state. The message shares memory with the state and must not be modified.
func (s *State) Snapshot() *raftv1.Snapshot {
	panic("not written yet")
}

// Restore replaces the state. On an error it has changed nothing.
func (s *State) Restore(snap *raftv1.Snapshot) error {
	panic("not written yet")
}
