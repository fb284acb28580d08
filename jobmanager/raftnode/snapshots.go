package raftnode

import (
	"github.com/hashicorp/raft"
)

// snapshotFactor is how much longer than a log write a step of writing a snapshot may take.
const snapshotFactor = 4

// snapshots is the library's snapshot store with its writes watched. One that fails is tried again by the library.
type snapshots struct {
	raft.SnapshotStore
	watch *watch
}

var _ raft.SnapshotStore = snapshots{}

// Create implements raft.SnapshotStore.
func (s snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64,
	transport raft.Transport,
) (raft.SnapshotSink, error) {
	defer s.watch.begin("creating a snapshot", snapshotFactor)()
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, transport)
	if err != nil {
		return nil, err
	}
	return snapshotSink{sink, s.watch}, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	watch *watch
}

// Write implements raft.SnapshotSink.
func (s snapshotSink) Write(p []byte) (int, error) {
	defer s.watch.begin("writing a snapshot", snapshotFactor)()
	return s.SnapshotSink.Write(p)
}

// Close implements raft.SnapshotSink.
func (s snapshotSink) Close() error {
	defer s.watch.begin("finishing a snapshot", snapshotFactor)()
	return s.SnapshotSink.Close()
}

// machine is the state machine with Apply watched.
type machine struct {
	raft.FSM
	watch *watch
}

// Apply implements raft.FSM.
func (m machine) Apply(l *raft.Log) any {
	defer m.watch.begin("applying an entry of the log", snapshotFactor)()
	return m.FSM.Apply(l)
}
