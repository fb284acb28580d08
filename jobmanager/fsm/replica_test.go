package fsm_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

var update = flag.Bool("update", false, "write the golden snapshot of the current format")

func requireEqualProto(t testing.TB, want, got proto.Message) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

// sink is a raft.SnapshotSink in memory.
type sink struct {
	bytes.Buffer
	closed, canceled bool
	err              error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(p)
}
func (s *sink) Close() error  { s.closed = true; return nil }
func (s *sink) Cancel() error { s.canceled = true; return nil }
func (s *sink) ID() string    { return "test" }

func entry(t testing.TB, index uint64, cmd *raftv1.Command) *raft.Log {
	t.Helper()
	data, err := proto.Marshal(cmd)
	require.NoError(t, err)
	return &raft.Log{Index: index, Data: data}
}

func persist(t testing.TB, m *fsm.Machine) *sink {
	t.Helper()
	snap, err := m.Snapshot()
	require.NoError(t, err)
	defer snap.Release()
	s := &sink{}
	require.NoError(t, snap.Persist(s))
	require.True(t, s.closed)
	return s
}

func TestMachineAppliesLogEntries(t *testing.T) {
	m := fsm.NewMachine()
	changed := m.Changed()
	res := m.Apply(entry(t, 41, create("j"))).(fsm.Result)
	require.NoError(t, res.Err)
	<-changed
	require.Equal(t, uint64(41), m.View().Index())
	res = m.Apply(entry(t, 42, create("k"))).(fsm.Result)
	require.NoError(t, res.Err)
	require.Len(t, m.View().Jobs(), 2)
	require.ErrorIs(t, m.Apply(entry(t, 43, newAttempt(9))).(fsm.Result).Err, fsm.ErrStaleAttempt)
}

func TestMachinePanicsOnAnEntryItCannotDecode(t *testing.T) {
	defer func() { require.Contains(t, recover(), "log entry 7 cannot be decoded") }()
	fsm.NewMachine().Apply(&raft.Log{Index: 7, Data: []byte{0xff}})
}

func TestSnapshotIsTakenBesideApply(t *testing.T) {
	m := fsm.NewMachine()
	m.Apply(entry(t, 1, create("j")))
	snap, err := m.Snapshot()
	require.NoError(t, err)
	m.Apply(entry(t, 2, newAttempt(1)))
	s := &sink{}
	require.NoError(t, snap.Persist(s))

	restored := fsm.NewMachine()
	restored.Apply(entry(t, 1, create("old")))
	changed := restored.Changed()
	require.NoError(t, restored.Restore(io.NopCloser(s)))
	<-changed
	require.Len(t, restored.View().Jobs(), 1)
	r, ok := restored.View().Job("j")
	require.True(t, ok)
	require.Equal(t, created, r.GetState())
}

func TestSnapshotThatCannotBeWrittenIsCanceled(t *testing.T) {
	m := fsm.NewMachine()
	m.Apply(entry(t, 1, create("j")))
	snap, err := m.Snapshot()
	require.NoError(t, err)
	s := &sink{err: errors.New("disk full")}
	require.ErrorContains(t, snap.Persist(s), "disk full")
	require.True(t, s.canceled)
	require.False(t, s.closed)
}

func TestTruncatedSnapshotChangesNothing(t *testing.T) {
	m := fsm.NewMachine()
	m.Apply(entry(t, 1, create("j")))
	m.Apply(entry(t, 2, create("k")))
	whole := persist(t, m).Bytes()
	for n := range whole {
		target := fsm.NewMachine()
		target.Apply(entry(t, 1, initCluster("keep")))
		require.Error(t, target.Restore(io.NopCloser(bytes.NewReader(whole[:n]))), "first %d bytes", n)
		require.Equal(t, "keep", target.View().ClusterID())
	}
}

func TestNewerSnapshotFormatIsRefused(t *testing.T) {
	var s fsm.State
	require.ErrorIs(t, s.Restore(&raftv1.Snapshot{FormatVersion: 2}), fsm.ErrFormat)
	require.ErrorIs(t, s.Restore(&raftv1.Snapshot{}), fsm.ErrFormat)
	require.ErrorIs(t, s.Restore(&raftv1.Snapshot{FormatVersion: 1, JobCount: 1}), io.ErrUnexpectedEOF)
}

// goldenState exercises every field that a record can have.
func goldenState(t *testing.T) *world {
	w := newWorld(t)
	w.apply(initCluster("cluster-1"))
	w.apply(member("m1", 18))
	w.apply(member("m2", 18))
	job := record("j")
	job.Args, job.ArtifactSha256, job.Parallelism = []string{"-x", "${env:PASSWORD}"}, "abc", 3
	w.must(createRecord(job))
	w.must(reserve(1000))
	w.must(newAttempt(1))
	w.must(start(1))
	w.must(completed(1, 1))
	for id := uint64(2); id <= 4; id++ {
		w.must(completed(1, id, id-1))
	}
	w.must(pin(2, true))
	w.must(fail(1, 1000, true))
	w.must(newAttempt(2))
	w.must(start(2))
	w.must(savepoint(&raftv1.Savepoint{RequestId: "p", Path: "file:///p", Checkpoint: 2, AtMs: 7}))
	w.must(requestStop("s", "file:///stop"))
	w.must(end("e", canceled))
	w.must(settlingAttempt(3))
	w.must(result(goesOn, "broker gone"))
	w.must(create("k"))
	return w
}

func TestOldestSnapshotFormatStaysReadable(t *testing.T) {
	const file = "testdata/snapshot-v1.binpb"
	want := goldenState(t).state.Snapshot()
	want.Jobs = slices.Clone(want.GetJobs())
	if *update {
		var buf bytes.Buffer
		require.NoError(t, fsm.WriteSnapshot(&buf, want))
		require.NoError(t, os.WriteFile(file, buf.Bytes(), 0o644))
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	got, err := fsm.ReadSnapshot(bytes.NewReader(data))
	require.NoError(t, err)
	for i, job := range want.GetJobs() {
		// The file is older than this field.
		want.Jobs[i] = proto.CloneOf(job)
		want.Jobs[i].UnfencedWorkers = nil
	}
	requireEqualProto(t, want, got)
}

// lossesState has what level 25 has brought.
func lossesState(t *testing.T) *world {
	w := unsettledWorld(t)
	accepted := loss("b")
	accepted.Accepted = true
	w.must(updated(loss("a"), accepted, pending("c"), pending("d"), pending("e")))
	w.must(updated(loss("c")))
	w.must(withdraw(pending("d")))
	many := loss("")
	many.Transactions = 12
	w.must(updated(many))
	return w
}

// golden replays a log that a program of some level has written, compares with the snapshot that the same program made of it, and returns
// what that has.
func golden(t *testing.T, logFile, snapshotFile string) fsm.View {
	log, err := os.ReadFile(logFile)
	require.NoError(t, err)
	data, err := os.ReadFile(snapshotFile)
	require.NoError(t, err)
	replayed := fsm.NewMachine()
	in := bytes.NewReader(log)
	var index uint64
	for in.Len() > 0 {
		cmd := &raftv1.Command{}
		require.NoError(t, protodelim.UnmarshalFrom(in, cmd))
		index++
		require.NoError(t, replayed.Apply(entry(t, index, cmd)).(fsm.Result).Err)
	}
	restored := fsm.NewMachine()
	require.NoError(t, restored.Restore(io.NopCloser(bytes.NewReader(data))))
	require.True(t, bytes.Equal(persist(t, restored).Bytes(), persist(t, replayed).Bytes()))
	return restored.View()
}

// writeGolden writes the files of one level, if that is asked for.
func writeGolden(t *testing.T, w *world, logFile, snapshotFile string) {
	if !*update {
		return
	}
	var log, snap bytes.Buffer
	for _, cmd := range w.log {
		_, err := protodelim.MarshalTo(&log, cmd)
		require.NoError(t, err)
	}
	require.NoError(t, fsm.WriteSnapshot(&snap, w.state.Snapshot()))
	require.NoError(t, os.WriteFile(logFile, log.Bytes(), 0o644))
	require.NoError(t, os.WriteFile(snapshotFile, snap.Bytes(), 0o644))
}

// TestLogAndSnapshotOfTheFirstLevelStayReadable holds the files that a program of level 18 has written. A later level adds files of its
// own; these stay as they are.
func TestLogAndSnapshotOfTheFirstLevelStayReadable(t *testing.T) {
	const logFile, snapshotFile = "testdata/log-level-18.binpb", "testdata/snapshot-v1-level-18.binpb"
	writeGolden(t, goldenState(t), logFile, snapshotFile)
	v := golden(t, logFile, snapshotFile)

	// What it is, told by hand.
	require.Equal(t, "cluster-1", v.ClusterID())
	require.Len(t, v.Members(), 2)
	require.Len(t, v.Jobs(), 2)
	j, ok := v.Job("j")
	require.True(t, ok)
	require.Equal(t, canceled, j.GetState())
	require.Equal(t, "broker gone", j.GetUnsettled())
	require.Equal(t, []uint64{2, 4}, ids(j.GetCheckpoints()))
	require.NotEmpty(t, j.GetUnfencedWorkers())
	k, ok := v.Job("k")
	require.True(t, ok)
	require.Equal(t, created, k.GetState())
}

func TestLogAndSnapshotOfLevel25StayReadable(t *testing.T) {
	const logFile, snapshotFile = "testdata/log-level-25.binpb", "testdata/snapshot-v1-level-25.binpb"
	writeGolden(t, lossesState(t), logFile, snapshotFile)
	j, ok := golden(t, logFile, snapshotFile).Job("j")
	require.True(t, ok)
	var got []string
	for _, l := range j.GetLost() {
		got = append(got, fmt.Sprintf("%s accepted=%v pending=%v %d", l.GetTransaction(), l.GetAccepted(), l.GetPending(), l.GetTransactions()))
	}
	require.Equal(t, []string{
		"a accepted=false pending=false 0", "b accepted=true pending=false 0", "c accepted=true pending=false 0", "e accepted=true pending=true 0",
		" accepted=false pending=false 12",
	}, got)
	require.Len(t, fsm.Unaccepted(j, 5), 2)
}

func TestSnapshotFileOfANewerProgramIsRefused(t *testing.T) {
	var buf bytes.Buffer
	require.NoError(t, fsm.WriteSnapshot(&buf, &raftv1.Snapshot{FormatVersion: 2}))
	m := fsm.NewMachine()
	m.Apply(entry(t, 1, initCluster("keep")))
	err := m.Restore(io.NopCloser(&buf))
	require.ErrorIs(t, err, fsm.ErrFormat)
	require.ErrorContains(t, err, "snapshot format 2, this program reads 1 to 1")
	require.Equal(t, "keep", m.View().ClusterID())
}

func TestLevelOfACommandIsItsNumber(t *testing.T) {
	require.EqualValues(t, 1, fsm.LevelOf(initCluster("c")))
	require.EqualValues(t, 18, fsm.LevelOf(forget("j")))
	fields := (&raftv1.Command{}).ProtoReflect().Descriptor().Fields()
	var highest protoreflect.FieldNumber
	for i := range fields.Len() {
		highest = max(highest, fields.Get(i).Number())
	}
	require.GreaterOrEqual(t, uint32(fsm.Level), uint32(highest), "a new command raises the level")
}

func FuzzReadSnapshot(f *testing.F) {
	golden, err := os.ReadFile("testdata/snapshot-v1.binpb")
	require.NoError(f, err)
	f.Add(golden)
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		snap, err := fsm.ReadSnapshot(bytes.NewReader(data))
		if err != nil {
			return
		}
		snap.ProtoReflect().SetUnknown(nil) // the header is built anew
		var buf bytes.Buffer
		require.NoError(t, fsm.WriteSnapshot(&buf, snap))
		again, err := fsm.ReadSnapshot(&buf)
		require.NoError(t, err)
		requireEqualProto(t, snap, again)
	})
}

// TestRecordsAreCopiedWhole fails when a field is added to JobRecord and not to the copy that each change works on.
func TestRecordsAreCopiedWhole(t *testing.T) {
	full := &raftv1.JobRecord{}
	fill(full.ProtoReflect(), 0)
	full.Id, full.State, full.Savepoints = "j", jobv1.JobState_JOB_STATE_RUNNING, nil
	var s fsm.State
	require.NoError(t, s.Restore(&raftv1.Snapshot{FormatVersion: 1, JobCount: 1, Jobs: []*raftv1.JobRecord{full}}))
	before := proto.CloneOf(full)
	res := s.Apply(1, savepoint(&raftv1.Savepoint{RequestId: "p"}))
	require.NoError(t, res.Err)
	requireEqualProto(t, before, full)
	got := proto.CloneOf(res.Job)
	got.Savepoints = nil
	requireEqualProto(t, before, got)
}

// fill sets every field of a message to something.
func fill(m protoreflect.Message, depth int) {
	if depth > 4 {
		return
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		isMessage := fd.Kind() == protoreflect.MessageKind
		switch {
		case fd.IsMap():
			m.Mutable(fd).Map().Set(scalar(fd.MapKey()).MapKey(), scalar(fd.MapValue()))
		case fd.IsList() && isMessage:
			fill(m.Mutable(fd).List().AppendMutable().Message(), depth+1)
		case fd.IsList():
			m.Mutable(fd).List().Append(scalar(fd))
		case isMessage:
			fill(m.Mutable(fd).Message(), depth+1)
		default:
			m.Set(fd, scalar(fd))
		}
	}
}

func scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("bytes"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(3)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(4)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(5)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(6)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(7)
	}
	panic("no value for " + fd.FullName())
}
