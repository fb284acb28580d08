package statebackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// While a new base is made range by range, each snapshot can be restored, and none writes more than a part of the state.
func TestALargeBaseIsMergedRangeByRange(t *testing.T) {
	const keys, rounds = 2000, 60
	random := rand.New(rand.NewPCG(1, 2))
	store := statetest.NewStore(t.TempDir())
	sixteen := func(restored ...*snapshotv1.KeyedSnapshot) statebackend.Config {
		cfg := config(t, store, restored...)
		cfg.KeyGroups, cfg.MaxParallelism = keygroup.Range{Last: 15}, 16
		return cfg
	}
	b := statebackend.New(sixteen(), mustKey[string](t))
	statebackend.ShrinkLimits(b)
	v := statebackend.NewValue(b, "v", mustCodec[string](t))
	require.NoError(t, b.Open(context.Background()))
	defer func() { require.NoError(t, b.Close()) }()
	want := map[string]string{}
	for i := range keys {
		k := fmt.Sprintf("key-%05d", i)
		want[k] = fmt.Sprintf("value-%d", random.Uint64())
		require.NoError(t, v.Put(k, want[k]))
	}
	base := entries(write(t, b, 1))
	b.CheckpointCompleted(1)
	sweeping := 0
	known := store.Names()
	for n := uint64(2); n < rounds; n++ {
		for range 150 {
			k := fmt.Sprintf("key-%05d", random.IntN(keys))
			if random.IntN(5) == 0 {
				require.NoError(t, v.Delete(k))
				delete(want, k)
				continue
			}
			want[k] = fmt.Sprintf("value-%d", random.Uint64())
			require.NoError(t, v.Put(k, want[k]))
		}
		h := write(t, b, n)
		require.Less(t, entries(added(h, known)), base, "checkpoint %d", n)
		known = store.Names()
		if random.IntN(4) > 0 { // some are not completed
			b.CheckpointCompleted(n)
		}
		if statebackend.Sweeping(b) {
			sweeping++
		}
		require.Less(t, entries(h), 3*base, "checkpoint %d", n)

		restored := statebackend.New(sixteen(h), mustKey[string](t))
		got := statebackend.NewValue(restored, "v", mustCodec[string](t))
		require.NoError(t, restored.Open(context.Background()))
		for i := range keys {
			k := fmt.Sprintf("key-%05d", i)
			value, ok, err := got.Get(k)
			require.NoError(t, err)
			wanted, there := want[k]
			require.Equal(t, there, ok, "checkpoint %d, key %s", n, k)
			require.Equal(t, wanted, value, "checkpoint %d, key %s", n, k)
		}
		require.NoError(t, restored.Close())
	}
	require.Greater(t, sweeping, 10)
}

// added are the segments of h whose names are new.
func added(h *snapshotv1.KeyedSnapshot, known []string) *snapshotv1.KeyedSnapshot {
	names := map[string]bool{"": true}
	for _, name := range known {
		names[name] = true
	}
	fresh := &snapshotv1.KeyedSnapshot{}
	for _, s := range h.GetSegments() {
		if !names[s.GetName()] {
			fresh.Segments = append(fresh.Segments, s)
		}
	}
	return fresh
}

// Both ends of a range of key groups belong to it.
func TestClip(t *testing.T) {
	s := &snapshotv1.Segment{Name: "s", Size: 9, Base: true, KeyGroups: &snapshotv1.KeyGroupRange{First: 3, Last: 6}}
	for _, c := range []struct{ first, last, wantFirst, wantLast int }{
		{0, 2, 1, 0}, {7, 9, 1, 0}, // nothing
		{0, 3, 3, 3}, {6, 9, 6, 6}, {0, 9, 3, 6}, {4, 5, 4, 5}, {3, 6, 3, 6}, {2, 4, 3, 4}, {5, 7, 5, 6},
	} {
		got, ok := statebackend.Clip(s, c.first, c.last)
		require.Equal(t, c.wantFirst <= c.wantLast, ok, "%v", c)
		if ok {
			require.Equal(t, []uint32{uint32(c.wantFirst), uint32(c.wantLast)}, []uint32{got.GetFirst(), got.GetLast()}, "%v", c)
		}
	}
}
