package statebackend_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/segment"
	"github.com/weir-stream/weir/statebackend/statetest"
)

var allGroups = keygroup.Range{First: 0, Last: keygroup.DefaultMaxParallelism - 1}

func config(t testing.TB, store *statetest.Store, restored ...*snapshotv1.KeyedSnapshot) statebackend.Config {
	return statebackend.Config{
		Operator: "counter", KeyGroups: allGroups, Dir: t.TempDir(), NamePrefix: t.Name() + fmt.Sprint(len(store.Names())), Segments: store,
		Restored: restored,
	}
}

type single[V any] struct {
	*statebackend.Backend[string]
	v *statebackend.Value[string, V]
}

func newSingle[V any](t testing.TB, cfg statebackend.Config) single[V] {
	b := statebackend.New(cfg, mustKey[string](t))
	v := statebackend.NewValue(b, "v", mustCodec[V](t))
	require.NoError(t, b.Open(context.Background()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return single[V]{b, v}
}

func write[K comparable](t testing.TB, b *statebackend.Backend[K], n uint64) *snapshotv1.KeyedSnapshot {
	h, err := b.Freeze(n, false).Write(context.Background())
	require.NoError(t, err)
	return h
}

func entries(h *snapshotv1.KeyedSnapshot) (n uint64) {
	for _, s := range h.GetSegments() {
		n += s.GetEntries()
	}
	return n
}

func TestWhatIsBornAndGoneIsNeverWritten(t *testing.T) {
	s := newSingle[int](t, config(t, statetest.NewStore(t.TempDir())))
	require.NoError(t, s.v.Put("gone", 1))
	require.NoError(t, s.v.Delete("gone"))
	require.Empty(t, write(t, s.Backend, 1).GetSegments())

	// Not even when an aborted checkpoint saw it.
	require.NoError(t, s.v.Put("seen", 1))
	require.Equal(t, uint64(1), entries(write(t, s.Backend, 2)))
	require.NoError(t, s.v.Delete("seen"))
	require.Zero(t, entries(write(t, s.Backend, 3)))

	// But when the checkpoint was completed after all, a tombstone is needed.
	s.CheckpointCompleted(2)
	h := write(t, s.Backend, 4)
	require.Equal(t, uint64(2), entries(h))
	s2 := newSingle[int](t, config(t, statetest.NewStore(t.TempDir()), h))
	_, ok, err := s2.v.Get("seen")
	require.NoError(t, err)
	require.False(t, ok)
}

// After many keys have expired, what a savepoint would copy is about what is there.
func TestExpiredStateLeavesTheSegments(t *testing.T) {
	const keys = 50_000
	store := statetest.NewStore(t.TempDir())
	size := func(h *snapshotv1.KeyedSnapshot) (n uint64) {
		for _, s := range h.GetSegments() {
			n += s.GetSize()
		}
		return n
	}
	expire := map[string]func(b *statebackend.Backend[int64], value *statebackend.Value[int64, int64], panes *statebackend.Panes[int64, int64]){
		"dropped panes": func(_ *statebackend.Backend[int64], _ *statebackend.Value[int64, int64], panes *statebackend.Panes[int64, int64]) {
			require.NoError(t, panes.Drop(1))
		},
		"deleted keys": func(_ *statebackend.Backend[int64], value *statebackend.Value[int64, int64], _ *statebackend.Panes[int64, int64]) {
			for k := range int64(keys) {
				require.NoError(t, value.Delete(k))
			}
		},
	}
	for name, fn := range expire {
		t.Run(name, func(t *testing.T) {
			b := statebackend.New(config(t, store), mustKey[int64](t))
			value := statebackend.NewValue(b, "value", mustCodec[int64](t))
			panes := statebackend.NewPanes(b, "panes", mustCodec[int64](t))
			require.NoError(t, b.Open(t.Context()))
			defer func() { require.NoError(t, b.Close()) }()
			for k := range int64(keys) {
				if name == "deleted keys" {
					require.NoError(t, value.Put(k, k))
					continue
				}
				acc, _, err := panes.Acquire(1, k)
				require.NoError(t, err)
				*acc = k
			}
			full := write(t, b, 1)
			b.CheckpointCompleted(1)
			require.EqualValues(t, keys, entries(full))
			fn(b, value, panes)
			require.NoError(t, value.Put(7, 7))
			h := write(t, b, 2)
			b.CheckpointCompleted(2)
			require.LessOrEqual(t, entries(h), uint64(10))
			require.Less(t, size(h), size(full)/10)
			restored := statebackend.New(config(t, store, h), mustKey[int64](t))
			value = statebackend.NewValue(restored, "value", mustCodec[int64](t))
			panes = statebackend.NewPanes(restored, "panes", mustCodec[int64](t))
			require.NoError(t, restored.Open(t.Context()))
			got, ok, err := value.Get(7)
			require.NoError(t, err)
			require.True(t, ok)
			require.EqualValues(t, 7, got)
			require.Empty(t, panes.All())
			require.NoError(t, restored.Close())
		})
	}
}

func TestSmallSnapshotsTravelByValue(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	s := newSingle[int](t, config(t, store))
	for n := uint64(1); n < 40; n++ {
		require.NoError(t, s.v.Put(fmt.Sprint("key", n), int(n)))
		h := write(t, s.Backend, n)
		require.LessOrEqual(t, len(h.GetSegments()), 9)
		s.CheckpointCompleted(n)
	}
	require.Empty(t, store.Names())
}

func TestUnchangedStateWritesNothing(t *testing.T) {
	s := newSingle[int](t, config(t, statetest.NewStore(t.TempDir())))
	require.NoError(t, s.v.Put("k", 1))
	h := write(t, s.Backend, 1)
	s.CheckpointCompleted(1)
	require.Equal(t, h.GetSegments(), write(t, s.Backend, 2).GetSegments())
}

func TestFailedUploadsAreStorageErrorsAndLoseNothing(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	cfg := config(t, store)
	s := newSingle[string](t, cfg)
	for i := range 1000 {
		require.NoError(t, s.v.Put(fmt.Sprint("key", i), "some value that does not fit inline"))
	}
	full := errors.New("no space left on device")
	store.Fail(full)
	_, err := s.Freeze(1, false).Write(context.Background())
	var storage *statebackend.StorageError
	require.ErrorAs(t, err, &storage)
	require.ErrorIs(t, err, full)
	left, err := os.ReadDir(cfg.Dir)
	require.NoError(t, err)
	require.Empty(t, left)

	store.Fail(nil)
	require.Equal(t, uint64(1000), entries(write(t, s.Backend, 2)))
}

func TestAccumulatorsAreCopiedBeforeTheyChangeUnderASnapshot(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	open := func(restored ...*snapshotv1.KeyedSnapshot) (*statebackend.Backend[string], *statebackend.Panes[string, tally]) {
		b := statebackend.New(config(t, store, restored...), mustKey[string](t))
		p := statebackend.NewPanes(b, "p", mustCodec[tally](t))
		require.NoError(t, b.Open(context.Background()))
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b, p
	}
	b, p := open()
	acc, _, err := p.Acquire(1, "k")
	require.NoError(t, err)
	acc.Counts = map[string]int{"n": 1}
	f := b.Freeze(1, false)
	acc, existed, err := p.Acquire(1, "k")
	require.NoError(t, err)
	require.True(t, existed)
	acc.Counts["n"] = 2
	h, err := f.Write(context.Background())
	require.NoError(t, err)

	_, old := open(h)
	a, _, err := old.Get(1, "k")
	require.NoError(t, err)
	require.Equal(t, 1, a.Counts["n"])
	a, _, err = p.Get(1, "k")
	require.NoError(t, err)
	require.Equal(t, 2, a.Counts["n"])
}

func TestADroppedPaneStaysDroppedWhileItsRowsAreLoaded(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	b := statebackend.New(config(t, store), mustKey[string](t))
	p := statebackend.NewPanes(b, "p", mustCodec[int](t))
	require.NoError(t, b.Open(context.Background()))
	acc, _, err := p.Acquire(1, "old")
	require.NoError(t, err)
	*acc = 1
	h := write(t, b, 1)
	require.NoError(t, b.Close())

	mail := make(chan func() error, 8) // never full: one batch and the end
	cfg := config(t, store, h)
	cfg.Post = func(fn func() error) { mail <- fn }
	b = statebackend.New(cfg, mustKey[string](t))
	p = statebackend.NewPanes(b, "p", mustCodec[int](t))
	require.NoError(t, b.Open(context.Background()))
	require.NoError(t, p.Drop(1))
	_, _, err = p.Acquire(1, "new")
	require.NoError(t, err)
	for !statebackend.Loaded(b) {
		require.NoError(t, (<-mail)())
	}
	_, ok, err := p.Get(1, "old")
	require.NoError(t, err)
	require.False(t, ok)
	require.NoError(t, b.Close())
}

func TestTombstonesAreForgottenOnceNothingNeedsThem(t *testing.T) {
	s := newSingle[int](t, config(t, statetest.NewStore(t.TempDir())))
	for i := range 100 {
		require.NoError(t, s.v.Put(fmt.Sprint(i), i))
	}
	write(t, s.Backend, 1)
	s.CheckpointCompleted(1)
	for i := range 100 {
		require.NoError(t, s.v.Delete(fmt.Sprint(i)))
	}
	require.Equal(t, 100, statebackend.Remembered(s.v))
	write(t, s.Backend, 2)
	s.CheckpointCompleted(2)
	for n := uint64(3); n < 55; n++ {
		require.NoError(t, s.v.Put("x", int(n)))
		write(t, s.Backend, n)
		s.CheckpointCompleted(n)
	}
	require.LessOrEqual(t, statebackend.Remembered(s.v), 1)
}

func TestASupersededSnapshotIsNotWritten(t *testing.T) {
	s := newSingle[int](t, config(t, statetest.NewStore(t.TempDir())))
	require.NoError(t, s.v.Put("k", 1))
	f := s.Freeze(1, false)
	write(t, s.Backend, 2)
	s.CheckpointCompleted(2)
	_, err := f.Write(context.Background())
	require.ErrorIs(t, err, statebackend.ErrSuperseded)
}

func TestKeysOfAnotherSubtaskAreRefused(t *testing.T) {
	cfg := config(t, statetest.NewStore(t.TempDir()))
	cfg.KeyGroups = keygroup.RangeOf(0, 2, 128)
	s := newSingle[int](t, cfg)
	require.Equal(t, 91, keygroup.OfString("a", 128))
	require.NoError(t, s.v.Put("a", 1))
	_, err := s.Freeze(1, false).Write(context.Background())
	require.ErrorIs(t, err, statebackend.ErrForeignKey)
}

func TestAFieldOfAnotherTypeIsRefused(t *testing.T) {
	type first struct {
		N    int64
		Tags []string
	}
	store := statetest.NewStore(t.TempDir())
	s := newSingle[first](t, config(t, store))
	require.NoError(t, s.v.Put("k", first{N: 300}))
	h := write(t, s.Backend, 1)

	type narrow struct{ N int8 }
	b := statebackend.New(config(t, store, h), mustKey[string](t))
	statebackend.NewValue(b, "v", mustCodec[narrow](t))
	err := b.Open(t.Context())
	require.ErrorIs(t, err, statebackend.ErrSchema)
	require.ErrorContains(t, err, `operator counter, state "v": the type of value.N was int64 in the checkpoint and is int8 in the job`)
	require.ErrorContains(t, err, "--allow-dropped-state")
	require.NoError(t, b.Close())

	// Fields come and go, but one that went does not come back as something else: old rows still have it.
	type without struct {
		N    int64
		More string
	}
	w := newSingle[without](t, config(t, store, h))
	v, _, err := w.v.Get("k")
	require.NoError(t, err)
	require.Equal(t, without{N: 300}, v)
	h = write(t, w.Backend, 2)
	type back struct {
		N    int64
		Tags int
	}
	b = statebackend.New(config(t, store, h), mustKey[string](t))
	statebackend.NewValue(b, "v", mustCodec[back](t))
	require.ErrorContains(t, b.Open(t.Context()), "value.Tags was [] in the checkpoint and is int64")
	require.NoError(t, b.Close())
}

func TestStateThatDoesNotFitIsRefused(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	s := newSingle[int64](t, config(t, store))
	require.NoError(t, s.v.Put("k", math.MaxInt64))
	h := write(t, s.Backend, 1)

	open := func(cfg statebackend.Config, declare func(b *statebackend.Backend[string])) error {
		b := statebackend.New(cfg, mustKey[string](t))
		declare(b)
		defer func() { require.NoError(t, b.Close()) }()
		return b.Open(context.Background())
	}
	err := open(config(t, store, h), func(b *statebackend.Backend[string]) {
		statebackend.NewValue(b, "v", mustCodec[string](t))
	})
	require.ErrorIs(t, err, statebackend.ErrSchema)
	require.ErrorContains(t, err, `operator counter, state "v": the value codec was int64 in the checkpoint and is string in the job`)
	err = open(config(t, store, h), func(b *statebackend.Backend[string]) {
		statebackend.NewList(b, "v", mustCodec[int64](t))
	})
	require.ErrorContains(t, err, "the kind was value")
	err = open(config(t, store, h), func(b *statebackend.Backend[string]) {
		statebackend.NewValue(b, "other", mustCodec[int64](t))
	})
	require.ErrorIs(t, err, statebackend.ErrDroppedState)
	require.ErrorContains(t, err, `does not declare the state "v"`)
	require.ErrorContains(t, err, "--allow-dropped-state")

	cfg := config(t, store, h)
	cfg.MaxParallelism = 64
	cfg.KeyGroups = keygroup.Range{First: 0, Last: 63}
	err = open(cfg, func(b *statebackend.Backend[string]) { statebackend.NewValue(b, "v", mustCodec[int64](t)) })
	require.ErrorContains(t, err, "128 key groups and the job 64")

	h.KeyGroups.Last = 100
	err = open(config(t, store, h), func(b *statebackend.Backend[string]) { statebackend.NewValue(b, "v", mustCodec[int64](t)) })
	require.ErrorContains(t, err, "no restored snapshot holds key group 101")
}

func TestADroppedStateLeavesNothingToItsSuccessor(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	s := newSingle[int64](t, config(t, store))
	require.NoError(t, s.v.Put("k", 5))
	h := write(t, s.Backend, 1)
	for _, name := range []string{"w", "v"} { // "v" comes back later, as a new state
		cfg := config(t, store, h)
		cfg.AllowDroppedState = true
		b := statebackend.New(cfg, mustKey[string](t))
		v := statebackend.NewValue(b, name, mustCodec[int64](t))
		require.NoError(t, b.Open(context.Background()))
		_, ok, err := v.Get("k")
		require.NoError(t, err)
		require.False(t, ok)
		h = write(t, b, 2)
		require.NoError(t, b.Close())
	}
}

func TestDamageIsNoticed(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	s := newSingle[string](t, config(t, store))
	require.NoError(t, s.v.Put("k", "value"))
	h := write(t, s.Backend, 1)
	h.Segments[0].Inline[len(h.Segments[0].Inline)-1] ^= 1
	b := statebackend.New(config(t, store, h), mustKey[string](t))
	statebackend.NewValue(b, "v", mustCodec[string](t))
	require.ErrorIs(t, b.Open(context.Background()), segment.ErrCorrupt)
	require.NoError(t, b.Close())
}

func TestPlan(t *testing.T) {
	list := func(sizes ...uint64) (segments []*snapshotv1.Segment) {
		for i, n := range sizes {
			segments = append(segments, &snapshotv1.Segment{Size: n, Checkpoint: uint64(i), Base: i == 0})
		}
		return segments
	}
	const mb = 1 << 20
	require.Equal(t, 0, statebackend.Plan(nil, 5))
	require.Equal(t, 3, statebackend.Plan(list(100*mb, mb, mb), mb), "short lists stay")
	require.Equal(t, 0, statebackend.Plan(list(2*mb, mb, mb), mb), "deltas outweigh the base")
	require.Equal(t, 0, statebackend.Plan(list(100, 9, 9, 9, 9, 9, 9, 9), 9), "small and long")
	runs := func(base uint64, counts ...int) []*snapshotv1.Segment { // a base, and deltas of the sizes that follow their numbers
		sizes := []uint64{base * mb}
		for i := 0; i < len(counts); i += 2 {
			sizes = append(sizes, slices.Repeat([]uint64{uint64(counts[i+1]) * mb}, counts[i])...)
		}
		return list(sizes...)
	}
	require.Equal(t, 43, statebackend.Plan(runs(10_000, 20, 24, 22, 1), mb), "few deltas of one size stay")
	require.Equal(t, 21, statebackend.Plan(runs(10_000, 20, 24, 23, 1), mb), "deltas of one size are merged, and merged ones left alone")
	require.Equal(t, 1, statebackend.Plan(runs(10_000, 23, 24, 23, 1), mb), "merged deltas are merged when they are many")
	falling := runs(1_000_000, 20, 4096, 20, 1024, 20, 256, 20, 64, 16, 16)
	require.Equal(t, 1+48, statebackend.Plan(falling, mb), "half of very many deltas of any size are merged")
	parts := runs(100, 23, 1)
	for i := range 40 { // a base in parts, as sweeps leave it
		parts = append([]*snapshotv1.Segment{{Size: 100 * mb, Checkpoint: 100 + uint64(i), Base: true}}, parts...)
	}
	require.Equal(t, 63, statebackend.Plan(parts[:63], mb), "parts of a base are not deltas")
	require.Equal(t, 41, statebackend.Plan(parts, mb))
	same := list(100*mb, 100*mb, mb)
	same[1].Checkpoint, same[1].Base = 0, true
	require.Equal(t, 3, statebackend.Plan(same, mb), "files of one base are one run")
}
