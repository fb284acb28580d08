package inspect_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/internal/inspect"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

type order struct {
	Customer string
	Cents    int64
	Tags     []string
}

type place struct {
	Row  int32
	Name string
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// write makes a checkpoint of two subtasks with states of each kind on storage, and returns its metadata. prefix is of its files' names.
func write(t *testing.T, root, prefix string) *snapshotv1.CheckpointMetadata {
	bucket := must(blob.OpenURL(t.Context(), "file://"+root))
	store := must(segmentstore.Open(segmentstore.Config{Dir: t.TempDir(), Bucket: bucket}))
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	md := &snapshotv1.CheckpointMetadata{FormatVersion: checkpointfile.FormatVersion, ClusterId: "c", JobId: "j", Checkpoint: 7, MaxParallelism: 128}
	for subtask := range 2 {
		groups := keygroup.Range{First: subtask * 64, Last: subtask*64 + 63}
		b := statebackend.New(statebackend.Config{
			KeyGroups: groups, MaxParallelism: 128, Dir: t.TempDir(), NamePrefix: fmt.Sprintf("%s%d", prefix, subtask), Segments: store,
		}, must(codec.ForKey[string]()))
		value := statebackend.NewValue(b, "last", must(codec.For[order]()))
		list := statebackend.NewList(b, "history", must(codec.For[int32]()))
		m := statebackend.NewMap(b, "places", must(codec.ForKey[place]()), must(codec.For[string]()))
		panes := statebackend.NewPanes(b, "window", must(codec.For[uint64]()))
		timers := statebackend.NewTimers(b, "timers")
		require.NoError(t, b.Open(t.Context()))
		write := func(round int) {
			for i := range 2000 {
				k := fmt.Sprintf("key-%d", i)
				if !groups.Contains(keygroup.Of([]byte(k), 128)) {
					continue
				}
				if round > 0 && i >= 10 {
					continue // a delta
				}
				require.NoError(t, value.Put(k, order{Customer: k, Cents: int64(i + round), Tags: []string{"a"}}))
				require.NoError(t, list.Append(k, int32(i), int32(-i)))
				require.NoError(t, m.Put(k, place{int32(-i), "x"}, "here"))
				require.NoError(t, m.Put(k, place{int32(i), "y"}, "there"))
				acc, _, err := panes.Acquire(60_000, k)
				require.NoError(t, err)
				*acc = uint64(i)
				require.NoError(t, timers.Add(int64(1000+i), k))
			}
		}
		write(0)
		must(b.Freeze(1, false).Write(t.Context()))
		b.CheckpointCompleted(1)
		write(1)
		require.NoError(t, value.Delete("key-5"))
		keyed := must(b.Freeze(7, false).Write(t.Context()))
		require.NoError(t, b.Close())
		task := &snapshotv1.TaskSnapshot{Vertex: "v", Subtask: uint32(subtask), Parallelism: 2, Operators: []*snapshotv1.OperatorSnapshot{
			{Uid: "source", OperatorStates: []*snapshotv1.OperatorState{{
				Name: "offsets", Version: 1, Entries: []*snapshotv1.OperatorStateEntry{{Key: fmt.Sprint("topic/", subtask), Value: []byte{9}}},
			}}},
			{Uid: "count", Keyed: keyed},
		}}
		md.Tasks = append(md.Tasks, &snapshotv1.TaskHandle{Vertex: "v", Subtask: uint32(subtask), Snapshot: must(proto.Marshal(task))})
	}
	return md
}

func publish(t *testing.T, dir string, md *snapshotv1.CheckpointMetadata) {
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metadata"), must(checkpointfile.Encode(md)), 0o644))
}

func open(t *testing.T, address string) *inspect.Snapshot {
	s, err := inspect.Open(t.Context(), address, blob.OpenURL)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func lines(t *testing.T, s *inspect.Snapshot, f inspect.Filter) (out []string) {
	require.NoError(t, s.Each(t.Context(), f, func(e *inspect.Entry) error {
		e.Subtask = 0
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		require.NoError(t, enc.Encode(e))
		out = append(out, strings.TrimSpace(b.String()))
		return nil
	}))
	return out
}

func TestACheckpointIsReadWithoutItsJob(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "c/jobs/j/checkpoints/7")
	publish(t, dir, write(t, root, "c/jobs/j/state/1/v-"))
	for _, address := range []string{dir, "file://" + dir, "file://" + dir + "/metadata"} {
		s := open(t, address)
		all, err := s.Summaries(t.Context())
		require.NoError(t, err)
		var got []string
		for _, m := range all {
			require.Positive(t, m.Bytes)
			got = append(got, fmt.Sprintf("%s %s %s %s %s %d %d", m.Operator, m.State, m.Kind, m.KeyCodec, m.Codec, m.Keys, m.Rows))
		}
		require.Equal(t, []string{
			"source offsets operator   0 2",
			"count last value string msgpack 1999 1999",
			"count history list string int32 2000 2000",
			"count places map string/struct{int32,string} string 2000 4000",
			"count window window string uint64 0 2000",
			"count timers timer string  0 2000",
		}, got)
	}
	s := open(t, dir)
	require.Len(t, lines(t, s, inspect.Filter{}), 2+1999+2000+4000+2000+2000)
	require.Len(t, lines(t, s, inspect.Filter{Operator: "count", State: "window"}), 2000)
	require.Equal(t, []string{
		`{"operator":"count","subtask":0,"state":"last","kind":"value","key":"key-3","value":{"Cents":4,"Customer":"key-3","Tags":["a"]}}`,
		`{"operator":"count","subtask":0,"state":"history","kind":"list","key":"key-3","value":[3,-3,3,-3]}`,
		`{"operator":"count","subtask":0,"state":"places","kind":"map","key":"key-3","mapKey":[-3,"x"],"value":"here"}`,
		`{"operator":"count","subtask":0,"state":"places","kind":"map","key":"key-3","mapKey":[3,"y"],"value":"there"}`,
		`{"operator":"count","subtask":0,"state":"window","kind":"window","key":"key-3","window":60000,"value":3}`,
		`{"operator":"count","subtask":0,"state":"timers","kind":"timer","key":"key-3","at":1003}`,
	}, lines(t, s, inspect.Filter{Operator: "count", Key: "key-3", HasKey: true}))
	require.Len(t, lines(t, s, inspect.Filter{State: "last", Key: "0x6b65792d33", HasKey: true}), 1)
	require.Empty(t, lines(t, s, inspect.Filter{State: "last", Key: "key-5", HasKey: true}), "it was deleted")
}

func TestOperatorsAndStatesThatAreNotThereAreNamedWithThoseThatAre(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "c/jobs/j/checkpoints/7")
	publish(t, dir, write(t, root, "c/jobs/j/state/1/v-"))
	s := open(t, dir)
	for f, says := range map[inspect.Filter]string{
		{Operator: "nosuch"}:                                            `there is no operator "nosuch"; there are source, count`,
		{Operator: "nosuch", State: "last"}:                             `there is no operator "nosuch"; there are source, count`,
		{Operator: "count", State: "bogus", Key: "key-3", HasKey: true}: `there is no state "bogus" in operator count; there are last, history, places, window, timers`,
		{Operator: "source", State: "last"}:                             `there is no state "last" in operator source; there are offsets`,
		{State: "bogus"}:                                                `there is no state "bogus"; there are offsets of source, last of count, history of count, places of count, window of count, timers of count`,
	} {
		err := s.Each(t.Context(), f, func(*inspect.Entry) error { return nil })
		require.ErrorIs(t, err, inspect.ErrNoState)
		require.EqualError(t, err, says)
	}
	require.NoError(t, s.Each(t.Context(), inspect.Filter{Operator: "count", State: "last", Key: "nobody", HasKey: true}, func(*inspect.Entry) error {
		t.Error("there is nothing for this key")
		return nil
	}))
}

func TestWhatOnlyTheJobCanReadIsHexadecimal(t *testing.T) {
	root := t.TempDir()
	md := write(t, root, "state/")
	for _, h := range md.GetTasks() {
		task := &snapshotv1.TaskSnapshot{}
		require.NoError(t, proto.Unmarshal(h.GetSnapshot(), task))
		task.GetOperators()[1].GetKeyed().GetSchemas()[0].ValueCodec = "protobuf"
		h.Snapshot = must(proto.Marshal(task))
	}
	dir := filepath.Join(root, "c/jobs/j/checkpoints/7")
	publish(t, dir, md)
	got := lines(t, open(t, dir), inspect.Filter{State: "last", Key: "key-3", HasKey: true})
	require.Len(t, got, 1)
	require.Contains(t, got[0], `"valueHex":"`)
	require.Contains(t, got[0], "value is of codec protobuf, which only the job can read")
}

func TestWhatIsNotThereOrDamagedIsNamed(t *testing.T) {
	root := t.TempDir()
	_, err := inspect.Open(t.Context(), "file://"+root, blob.OpenURL)
	require.ErrorContains(t, err, "there is no savepoint or checkpoint at file://"+root)
	_, err = inspect.Open(t.Context(), "nowhere", blob.OpenURL)
	require.ErrorContains(t, err, "neither a URL nor a directory")

	md := write(t, root, "state/")
	publish(t, filepath.Join(root, "moved"), md)
	_, err = inspect.Open(t.Context(), filepath.Join(root, "moved"), blob.OpenURL)
	require.ErrorContains(t, err, "ends with /c/jobs/j/checkpoints/7")

	dir := filepath.Join(root, "c/jobs/j/checkpoints/7")
	publish(t, dir, md)
	var largest string
	var size int64
	require.NoError(t, filepath.Walk(filepath.Join(root, "state"), func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Size() > size {
			largest, size = path, info.Size()
		}
		return err
	}))
	require.NotEmpty(t, largest)
	data := must(os.ReadFile(largest))
	data[len(data)/2] ^= 1
	require.NoError(t, os.Chmod(largest, 0o644))
	require.NoError(t, os.WriteFile(largest, data, 0o644))
	_, err = open(t, dir).Summaries(t.Context())
	require.ErrorIs(t, err, segmentstore.ErrCorrupt)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, open(t, dir).Each(ctx, inspect.Filter{}, func(*inspect.Entry) error { return nil }), context.Canceled)
}
