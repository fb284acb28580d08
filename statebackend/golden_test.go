package statebackend_test

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

var update = flag.Bool("update", false, "write the golden files anew")

type goldenStates struct {
	b      *statebackend.Backend[string]
	value  *statebackend.Value[string, int64]
	maps   *statebackend.Map[string, int, string]
	list   *statebackend.List[string, string]
	panes  *statebackend.Panes[string, tally]
	timers *statebackend.Timers[string]
}

func openGolden(t *testing.T, restored ...*snapshotv1.KeyedSnapshot) goldenStates {
	b := statebackend.New(config(t, statetest.NewStore(t.TempDir()), restored...), mustKey[string](t))
	s := goldenStates{
		b:      b,
		value:  statebackend.NewValue(b, "value", mustCodec[int64](t)),
		maps:   statebackend.NewMap(b, "map", mustKey[int](t), mustCodec[string](t)),
		list:   statebackend.NewList(b, "list", mustCodec[string](t)),
		panes:  statebackend.NewPanes(b, "panes", mustCodec[tally](t)),
		timers: statebackend.NewTimers(b, "timers"),
	}
	require.NoError(t, b.Open(context.Background()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return s
}

func writeGolden(t *testing.T) *snapshotv1.KeyedSnapshot {
	s := openGolden(t)
	for _, k := range []string{"", "a\x00b", "ключ"} {
		require.NoError(t, s.value.Put(k, -9007199254740993))
		require.NoError(t, s.maps.Put(k, -1, "minus"))
		require.NoError(t, s.maps.Put(k, 1, "plus"))
		require.NoError(t, s.list.Append(k, "", "x", string(make([]byte, 200))))
		for _, pane := range []int64{-60_000, 0} {
			acc, _, err := s.panes.Acquire(pane, k)
			require.NoError(t, err)
			acc.Counts = map[string]int{"n": 3}
		}
		require.NoError(t, s.timers.Add(-1, k))
		require.NoError(t, s.timers.Add(5, k))
	}
	write(t, s.b, 1)
	s.b.CheckpointCompleted(1)
	require.NoError(t, s.value.Delete(""))
	require.NoError(t, s.maps.Delete("", 1))
	require.NoError(t, s.panes.Drop(-60_000))
	require.NoError(t, s.timers.Delete(-1, ""))
	return write(t, s.b, 2)
}

// The layout of rows in format 1 must stay readable; the file was written by the version that introduced it.
func TestGoldenSnapshotOfFormat1(t *testing.T) {
	path := filepath.Join("testdata", "format1.snapshot")
	if *update {
		content, err := proto.MarshalOptions{Deterministic: true}.Marshal(writeGolden(t))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	h := &snapshotv1.KeyedSnapshot{}
	require.NoError(t, proto.Unmarshal(content, h))
	require.Len(t, h.GetSegments(), 2)

	s := openGolden(t, h)
	for _, k := range []string{"", "a\x00b", "ключ"} {
		v, ok, err := s.value.Get(k)
		require.NoError(t, err)
		require.Equal(t, k != "", ok)
		if ok {
			require.Equal(t, int64(-9007199254740993), v)
		}
		var got []string
		require.NoError(t, s.maps.Range(k, func(_ int, v string) bool {
			got = append(got, v)
			return true
		}))
		if k == "" {
			require.Equal(t, []string{"minus"}, got)
		} else {
			require.Equal(t, []string{"minus", "plus"}, got)
		}
		list, err := s.list.All(k)
		require.NoError(t, err)
		require.Equal(t, []string{"", "x", string(make([]byte, 200))}, list)
		acc, ok, err := s.panes.Get(0, k)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, 3, acc.Counts["n"])
	}
	require.Equal(t, []int64{0}, s.panes.All())
	fired := map[int64]int{}
	require.NoError(t, s.timers.Due(10, func(at int64, _ string) error {
		fired[at]++
		return nil
	}))
	require.Equal(t, map[int64]int{-1: 2, 5: 3}, fired)
}
