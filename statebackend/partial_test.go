package statebackend_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// Rows that expire take no room on storage for long, though nothing is written any more that they would be merged with, and though most of
// them are in segments only.
func TestRowsThatExpireInSegmentsLeaveStorage(t *testing.T) {
	const mortal, immortal = 12_000, 1500
	for _, c := range []struct {
		name   string
		scale  uint64
		inline int
	}{
		{"range by range", 1250, 1 << 30},
		{"at once, in files", 50, 256},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, statetest.NewStore(t.TempDir()))
			cfg.KeyGroups, cfg.MaxParallelism = keygroup.Range{Last: 127}, 128
			cfg.MemoryBudget = 300 << 10
			b := statebackend.New(cfg, mustKey[string](t))
			statebackend.ScaleLimits(b, c.scale, true)
			statebackend.CountEveryRow(b, c.inline)
			expiring := statebackend.NewValue(b, "expiring", mustCodec[string](t), after(1000*ms)...)
			staying := statebackend.NewValue(b, "staying", mustCodec[string](t))
			require.NoError(t, b.Open(context.Background()))
			defer func() { require.NoError(t, b.Close()) }()
			clock, n := int64(1000), uint64(0)
			checkpoint := func() *snapshotv1.KeyedSnapshot {
				n++
				b.SetTime(clock, statebackend.NoTime, statebackend.NoTime)
				h := write(t, b, n)
				b.CheckpointCompleted(n)
				return h
			}
			value := strings.Repeat("v", 40)
			b.SetTime(clock, statebackend.NoTime, statebackend.NoTime)
			for i := range immortal {
				require.NoError(t, staying.Put(fmt.Sprint("key", i), value))
			}
			live := size(checkpoint())
			for i := range mortal {
				require.NoError(t, expiring.Put(fmt.Sprint("key", i), value))
				if i%(mortal/8) == 0 {
					checkpoint()
				}
			}
			full := size(checkpoint())
			require.True(t, statebackend.Evicting(b))
			require.Greater(t, full, 4*live)

			clock += 5000
			var h *snapshotv1.KeyedSnapshot
			for range 250 { // one range each
				h = checkpoint()
			}
			require.LessOrEqual(t, size(h), 2*live)
			for i := range immortal {
				got, ok, err := staying.Get(fmt.Sprint("key", i))
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, value, got)
			}
		})
	}
}

// What is kept in memory to find rows in segments is a part of the budget, and never a large one.
func TestIndexesOfSegmentsCountInTheBudget(t *testing.T) {
	for _, c := range []struct {
		name    string
		budget  int64
		indexed bool
	}{
		{"room for all", 1 << 20, true},
		{"room for none", 2000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(t, statetest.NewStore(t.TempDir()))
			cfg.MemoryBudget = c.budget
			b := newSingle[string](t, cfg)
			defer func() { require.NoError(t, b.Close()) }()
			for n := uint64(1); n <= 3; n++ {
				for i := range 20_000 {
					require.NoError(t, b.v.Put(fmt.Sprintf("key-%06d", i), strings.Repeat("v", 60)))
				}
				write(t, b.Backend, n)
				b.CheckpointCompleted(n)
			}
			require.True(t, statebackend.Evicting(b.Backend))
			held, all := statebackend.Indexed(b.Backend)
			require.LessOrEqual(t, held, c.budget/8)
			require.Equal(t, c.indexed, held > 0)
			rows := int64(statebackend.Held(b.Backend))
			require.Greater(t, all, rows*60+held-1, "rows and indexes")
			for i := range 20_000 {
				_, ok, err := b.v.Get(fmt.Sprintf("key-%06d", i))
				require.NoError(t, err)
				require.True(t, ok)
			}
			require.Zero(t, b.Pressure().Excess)
		})
	}
}

// What many windows with few keys take in memory is little, and in the account.
func TestSparsePanesTakeLittleAndCount(t *testing.T) {
	for _, keys := range []int{1, 3, 30} {
		be := statebackend.New(wholeConfig(t), mustKey[string](t))
		p := statebackend.NewPanes(be, "p", mustCodec[[5]uint64](t))
		require.NoError(t, be.Open(t.Context()))
		names := make([]string, keys)
		for i := range names {
			names[i] = strconv.Itoa(i)
		}
		heap := func() int64 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := heap()
		const panes = 5000
		for at := range int64(panes) {
			for _, k := range names {
				_, _, err := p.Acquire(at*1000, k)
				require.NoError(t, err)
			}
		}
		held := heap() - before
		t.Logf("%d keys: %d bytes a pane, %d by the account", keys, held/panes, be.Bytes()/panes)
		require.Less(t, held/panes, int64(1500+400*keys), "bytes for each pane of %d keys", keys)
		require.Less(t, held, 2*be.Bytes(), "panes of %d keys", keys)
		require.NoError(t, be.Close())
	}
}
