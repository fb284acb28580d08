package fsm

import (
	"io"

	"github.com/hashicorp/raft"
)

// Machine makes a [State] the FSM of hashicorp/raft. Its methods may be called from any goroutine.
type Machine struct{}

var _ raft.FSM = (*Machine)(nil)

// NewMachine returns a machine with the empty state.
func NewMachine() *Machine {
	panic("not written yet")
}

// View returns the present state.
func (m *Machine) View() View {
	panic("not written yet")
}

// Changed returns a channel that is closed when the state changes after this call.
func (m *Machine) Changed() <-chan struct{} {
	panic("not written yet")
}

// Apply implements raft.FSM; the response is a [Result].
func (m *Machine) Apply(log *raft.Log) any {
	panic("not written yet")
}

// Snapshot implements raft.FSM.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	panic("not written yet")
}

// Restore implements raft.FSM.
func (m *Machine) Restore(r io.ReadCloser) error {
	panic("not written yet")
}
