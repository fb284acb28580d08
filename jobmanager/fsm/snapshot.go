package fsm

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
)

// snapshotFormat is the version of the snapshots that this program writes. It reads 1 up to this one.
const snapshotFormat = 1

// maxSnapshotMessage bounds one message of a snapshot file, in bytes, so that a damaged size does not allocate all memory.
const maxSnapshotMessage = 256 << 20

// Snapshot returns the whole state. The message shares memory with the state and must not be modified.
func (s *State) Snapshot() *raftv1.Snapshot {
	return snapshotOf(s.v)
}

func snapshotOf(v View) *raftv1.Snapshot {
	return &raftv1.Snapshot{
		FormatVersion: snapshotFormat,
		ClusterId:     v.clusterID,
		Jobs:          v.Jobs(),
		Members:       v.Members(),
		JobCount:      uint64(len(v.jobs)),
	}
}

// Restore replaces the state, and keeps parts of the message. On an error it has changed nothing.
func (s *State) Restore(snap *raftv1.Snapshot) error {
	if err := checkFormat(snap); err != nil {
		return err
	}
	if n := uint64(len(snap.GetJobs())); n != snap.GetJobCount() {
		return fmt.Errorf("snapshot has %d jobs instead of %d: %w", n, snap.GetJobCount(), io.ErrUnexpectedEOF)
	}
	s.v = View{clusterID: snap.GetClusterId(), jobs: snap.GetJobs(), members: snap.GetMembers()}
	return nil
}

func checkFormat(snap *raftv1.Snapshot) error {
	if v := snap.GetFormatVersion(); v < 1 || v > snapshotFormat {
		return fmt.Errorf("snapshot format %d, this program reads 1 to %d: %w", v, snapshotFormat, ErrFormat)
	}
	return nil
}

// WriteSnapshot writes a snapshot job by job, so that no buffer holds all of it.
func WriteSnapshot(w io.Writer, snap *raftv1.Snapshot) error {
	buffered := bufio.NewWriter(w)
	opts := protodelim.MarshalOptions{MarshalOptions: proto.MarshalOptions{Deterministic: true}}
	header := &raftv1.Snapshot{
		FormatVersion: snap.GetFormatVersion(),
		ClusterId:     snap.GetClusterId(),
		Members:       snap.GetMembers(),
		JobCount:      uint64(len(snap.GetJobs())),
	}
	if _, err := opts.MarshalTo(buffered, header); err != nil {
		return fmt.Errorf("writing snapshot header: %w", err)
	}
	for _, r := range snap.GetJobs() {
		if _, err := opts.MarshalTo(buffered, r); err != nil {
			return fmt.Errorf("writing job %s to snapshot: %w", r.GetId(), err)
		}
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("writing snapshot: %w", err)
	}
	return nil
}

// ReadSnapshot reads what [WriteSnapshot] has written, in this or an older version.
func ReadSnapshot(r io.Reader) (*raftv1.Snapshot, error) {
	buffered := bufio.NewReader(r)
	opts := protodelim.UnmarshalOptions{MaxSize: maxSnapshotMessage}
	snap := &raftv1.Snapshot{}
	if err := opts.UnmarshalFrom(buffered, snap); err != nil {
		return nil, fmt.Errorf("reading snapshot header: %w", unexpected(err))
	}
	if err := checkFormat(snap); err != nil {
		return nil, err
	}
	snap.Jobs = nil
	for i := range snap.GetJobCount() {
		job := &raftv1.JobRecord{}
		if err := opts.UnmarshalFrom(buffered, job); err != nil {
			return nil, fmt.Errorf("reading job %d of %d from snapshot: %w", i+1, snap.GetJobCount(), unexpected(err))
		}
		snap.Jobs = append(snap.Jobs, job)
	}
	return snap, nil
}

// unexpected makes the end of the file between two messages the error that it is here.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
