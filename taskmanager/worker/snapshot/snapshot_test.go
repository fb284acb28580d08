package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
)

// memory is a store that keeps files by name, or refuses everything.
type memory struct {
	dir    string
	broken error
}

func (m memory) Upload(_ context.Context, local, name string, _ uint64, _ uint32) error {
	if m.broken != nil {
		return m.broken
	}
	to := filepath.Join(m.dir, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return os.Rename(local, to)
}

func (m memory) Fetch(_ context.Context, seg *snapshotv1.Segment) (string, error) {
	return filepath.Join(m.dir, seg.GetName()), m.broken
}

func unkeyed(values ...string) []*snapshotv1.OperatorState {
	st := &snapshotv1.OperatorState{Name: "list", Version: 1}
	for _, v := range values {
		st.Entries = append(st.Entries, &snapshotv1.OperatorStateEntry{Value: []byte(v)})
	}
	return []*snapshotv1.OperatorState{st}
}

func pointOf(t require.TestingT, tasks ...*snapshotv1.TaskSnapshot) *snapshot.Point {
	meta := &snapshotv1.CheckpointMetadata{FormatVersion: checkpointfile.FormatVersion, MaxParallelism: 128}
	for _, task := range tasks {
		data, err := proto.Marshal(task)
		require.NoError(t, err)
		meta.Tasks = append(meta.Tasks, &snapshotv1.TaskHandle{Snapshot: data})
	}
	data, err := checkpointfile.Encode(meta)
	require.NoError(t, err)
	p, err := snapshot.Read(context.Background(), memory{}, &snapshotv1.Segment{Inline: data})
	require.NoError(t, err)
	return p
}

// TestRescaleHandsEverythingOver checks for any two parallelisms that every committable and every unkeyed entry arrives at exactly
// one subtask, and every keyed entry at all of them.
func TestRescaleHandsEverythingOver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		before := rapid.IntRange(1, 6).Draw(rt, "before")
		after := rapid.IntRange(1, 6).Draw(rt, "after")
		var tasks []*snapshotv1.TaskSnapshot
		for sub := range before {
			states := unkeyed(fmt.Sprint(sub))
			states[0].Entries = append(states[0].Entries, &snapshotv1.OperatorStateEntry{Key: fmt.Sprint("k", sub)})
			tasks = append(tasks, &snapshotv1.TaskSnapshot{
				Vertex: "v", Subtask: uint32(sub), Parallelism: uint32(before),
				Operators: []*snapshotv1.OperatorSnapshot{{
					Uid: "op", OperatorStates: states,
					Committables: []*snapshotv1.Committable{{Checkpoint: uint64(sub), Payload: []byte{byte(sub)}}},
				}},
			})
		}
		p := pointOf(rt, tasks...)
		var committables []int
		var loose []string
		keyed := 0
		for sub := range after {
			restored, cs := p.Operator("op", sub, after)
			require.True(rt, slices.IsSortedFunc(cs, func(a, b *snapshotv1.Committable) int { return int(a.GetCheckpoint()) - int(b.GetCheckpoint()) }))
			for _, c := range cs {
				require.Equal(rt, sub, int(c.GetPayload()[0])%after)
				committables = append(committables, int(c.GetPayload()[0]))
			}
			for _, s := range restored {
				for _, e := range s.GetOperatorStates()[0].GetEntries() {
					if e.GetKey() == "" {
						loose = append(loose, string(e.GetValue()))
					} else {
						keyed++
					}
				}
			}
		}
		var all []int
		var names []string
		for sub := range before {
			all, names = append(all, sub), append(names, fmt.Sprint(sub))
		}
		require.ElementsMatch(rt, all, committables)
		require.ElementsMatch(rt, names, loose)
		if before == after {
			require.Equal(rt, before, keyed)
		} else {
			require.Equal(rt, before*after, keyed)
		}
	})
}

func TestCheck(t *testing.T) {
	g := &graph.Graph{MaxParallelism: 128, Vertices: []graph.Vertex{{Operators: []graph.Operator{
		{UID: "src", Source: true}, {UID: "map"}, {UID: "sum", Stateful: true}, {UID: "sink", TransactionSlots: 4},
	}}}}
	wm := int64(5)
	task := func(ops ...*snapshotv1.OperatorSnapshot) *snapshotv1.TaskSnapshot {
		return &snapshotv1.TaskSnapshot{Vertex: "v", Parallelism: 1, Operators: ops}
	}
	state := func(uid string) *snapshotv1.OperatorSnapshot {
		return &snapshotv1.OperatorSnapshot{Uid: uid, OperatorStates: unkeyed("x")}
	}
	open := &snapshotv1.OperatorSnapshot{Uid: "oldsink", Committables: []*snapshotv1.Committable{{Checkpoint: 1}}}

	require.NoError(t, pointOf(t, task(state("src"), state("sum"), state("sink"))).Check(g, false, false))
	require.NoError(t, pointOf(t, task(&snapshotv1.OperatorSnapshot{Uid: "map", Watermark: &wm})).Check(g, false, false),
		"a watermark alone is no state")
	err := pointOf(t, task(state("map"), state("gone"))).Check(g, false, false)
	require.ErrorIs(t, err, snapshot.ErrDroppedState)
	require.ErrorContains(t, err, "operators gone, map")
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	require.NoError(t, pointOf(t, task(state("map"), state("gone"))).Check(g, true, false))

	err = pointOf(t, task(open)).Check(g, true, false)
	require.ErrorIs(t, err, snapshot.ErrDroppedState, "output would be lost, whatever is allowed")
	require.ErrorContains(t, err, "oldsink (1 transactions)")
	require.NoError(t, pointOf(t, task(open)).Check(g, false, true))

	other := &graph.Graph{MaxParallelism: 256}
	require.ErrorIs(t, pointOf(t).Check(other, true, true), snapshot.ErrMaxParallelism)
}

func TestHandle(t *testing.T) {
	dir := t.TempDir()
	w := &snapshot.Writer{Store: memory{dir: dir}, Dir: t.TempDir(), Prefix: snapshot.Prefix("c", "j", 3, "a/b", 1)}
	s := &snapshotv1.TaskSnapshot{Vertex: "a/b", Subtask: 1, Parallelism: 2, Operators: []*snapshotv1.OperatorSnapshot{{
		Uid: "x", Committables: []*snapshotv1.Committable{{}, {}},
		Keyed: &snapshotv1.KeyedSnapshot{Segments: []*snapshotv1.Segment{
			{Name: "old", Size: 100, Checkpoint: 4}, {Name: "new", Size: 10, Checkpoint: 7}, {Inline: []byte("abc"), Size: 3, Checkpoint: 7},
		}},
	}}}
	h, delta, err := w.Handle(t.Context(), 7, s, true)
	require.NoError(t, err)
	require.Equal(t, uint64(13), delta)
	require.Equal(t, uint32(2), h.GetCommittables())
	require.True(t, h.GetEnded())
	require.Len(t, h.GetFiles(), 2)
	require.NotEmpty(t, h.GetSnapshot())

	s.Operators[0].OperatorStates = unkeyed(string(make([]byte, 2<<20)))
	h, _, err = w.Handle(t.Context(), 8, s, false)
	require.NoError(t, err)
	require.Empty(t, h.GetSnapshot())
	require.Equal(t, "c/jobs/j/state/3/a%2Fb-1/_task/8-0", h.GetSpilled().GetName())
	data, err := os.ReadFile(filepath.Join(dir, h.GetSpilled().GetName()))
	require.NoError(t, err)
	require.Equal(t, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)), h.GetSpilled().GetCrc32C())
	require.Equal(t, uint64(len(data)), h.GetSpilled().GetSize())

	w.Store = memory{broken: errors.New("no space")}
	_, _, err = w.Handle(t.Context(), 9, s, false)
	var storage *statebackend.StorageError
	require.ErrorAs(t, err, &storage)
	left, err := os.ReadDir(w.Dir)
	require.NoError(t, err)
	require.Empty(t, left, "nothing stays behind")
}

func TestReadErrors(t *testing.T) {
	_, err := snapshot.Read(t.Context(), memory{broken: errors.New("no such file")}, &snapshotv1.Segment{Name: "m"})
	require.Equal(t, operator.ClassStorage, operator.ClassOf(err))
	_, err = snapshot.Read(t.Context(), memory{broken: &statebackend.LostError{Name: "m", Err: errors.New("gone")}}, &snapshotv1.Segment{Name: "m"})
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
	data, err := checkpointfile.Encode(&snapshotv1.CheckpointMetadata{FormatVersion: 99})
	require.NoError(t, err)
	_, err = snapshot.Read(t.Context(), memory{}, &snapshotv1.Segment{Inline: data})
	require.ErrorContains(t, err, "99")
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))

	data[len(data)-1] ^= 1
	_, err = snapshot.Read(t.Context(), memory{}, &snapshotv1.Segment{Inline: data})
	require.ErrorIs(t, err, checkpointfile.ErrDamaged)
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
}
