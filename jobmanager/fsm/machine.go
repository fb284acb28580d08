package fsm

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"google.golang.org/protobuf/proto"
)

// Machine makes a [State] the FSM of hashicorp/raft. Its methods may be called from any goroutine.
type Machine struct {
	mu      sync.Mutex
	state   State
	changed chan struct{} // closed and replaced at every change
}

var _ raft.FSM = (*Machine)(nil)

// NewMachine returns a machine with the empty state.
func NewMachine() *Machine {
	return &Machine{changed: make(chan struct{})}
}

// View returns the present state.
func (m *Machine) View() View {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.View()
}

// Changed returns a channel that is closed after the next command or restore. Take it before the View that it is to be compared
// with.
func (m *Machine) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Apply implements raft.FSM; the response is a [Result].
func (m *Machine) Apply(log *raft.Log) any {
	cmd := &raftv1.Command{}
	if err := proto.Unmarshal(log.Data, cmd); err != nil {
		panic(fmt.Sprintf("fsm: log entry %d cannot be decoded, so this replica would differ from the others: %v", log.Index, err))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	res := m.state.Apply(log.Index, cmd)
	m.broadcast()
	return res
}

func (m *Machine) broadcast() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Snapshot implements raft.FSM.
func (m *Machine) Snapshot() (raft.FSMSnapshot, error) {
	return snapshot{m.View()}, nil
}

// Restore implements raft.FSM.
func (m *Machine) Restore(r io.ReadCloser) error {
	defer r.Close()
	snap, err := ReadSnapshot(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.state.Restore(snap); err != nil {
		return err
	}
	m.broadcast()
	return nil
}

type snapshot struct{ v View }

// Persist implements raft.FSMSnapshot; it runs beside Apply.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if err := WriteSnapshot(sink, snapshotOf(s.v)); err != nil {
		_ = sink.Cancel()
		return err
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}
