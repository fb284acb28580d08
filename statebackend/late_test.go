package statebackend_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// A loader whose rows come late, when the state has outgrown its budget and rows are evicted, brings nothing back.
func TestRowsOfALoaderThatComeLateAreDropped(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	old := newSingle[string](t, config(t, store))
	for i := range 100 {
		require.NoError(t, old.v.Put(fmt.Sprint("key", i), "old"))
	}
	h := write(t, old.Backend, 1)
	require.NoError(t, old.Close())

	posted := make(chan func() error, 8)
	cfg := config(t, store, h)
	cfg.Post = func(fn func() error) { posted <- fn }
	cfg.MemoryBudget = 64 << 10
	cfg.NamePrefix += "-2"
	b := newSingle[string](t, cfg)
	defer func() { require.NoError(t, b.Close()) }()
	require.False(t, statebackend.Evicting(b.Backend), "the restored rows fit")
	late := <-posted // it waits for its turn among the records

	for i := range 100 {
		require.NoError(t, b.v.Put(fmt.Sprint("key", i), "new"))
	}
	for n := uint64(2); n < 6; n++ {
		for i := range 300 {
			require.NoError(t, b.v.Put(fmt.Sprint("another", n, i), "new"))
		}
		write(t, b.Backend, n)
		b.CheckpointCompleted(n)
	}
	require.True(t, statebackend.Evicting(b.Backend))
	for i := 0; ; i = (i + 1) % 300 { // looking at others evicts
		_, _, err := b.v.Get(fmt.Sprint("another", 5, i))
		require.NoError(t, err)
		if evicted := evictedOf(b, 100); evicted > 10 {
			break
		}
		b.CheckpointCompleted(5)
	}
	require.NoError(t, late())
	for i := range 100 {
		v, ok, err := b.v.Get(fmt.Sprint("key", i))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "new", v, "key%d", i)
	}
}

func evictedOf(b single[string], keys int) (n int) {
	for i := range keys {
		if !statebackend.Remembers(b.v, fmt.Sprint("key", i)) {
			n++
		}
	}
	return n
}

// A loader that was stopped before its rows came is not heard of again.
func TestALoaderIsStoppedByClose(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	old := newSingle[string](t, config(t, store))
	for i := range 1000 {
		require.NoError(t, old.v.Put(fmt.Sprint("key", i), "old"))
	}
	h := write(t, old.Backend, 1)
	require.NoError(t, old.Close())
	posted := make(chan func() error, 8)
	cfg := config(t, store, h)
	cfg.Post = func(fn func() error) { posted <- fn }
	b := statebackend.New(cfg, mustKey[string](t))
	v := statebackend.NewValue(b, "v", mustCodec[string](t))
	require.NoError(t, b.Open(context.Background()))
	late := <-posted
	require.NoError(t, b.Close())
	require.NoError(t, late())
	require.Zero(t, statebackend.Remembered(v))
	require.Empty(t, posted)
}
