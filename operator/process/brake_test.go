package process_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/process"
	"github.com/weir-stream/weir/statebackend/statetest"
)

type discard struct{}

func (discard) Collect(string, int64) error { return nil }

// Changed state cannot be evicted. When it alone exceeds the memory budget, each record waits for a millisecond, people are told why, and
// a completed checkpoint ends it.
func TestTooMuchChangedStateSlowsRecordsDown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		key, err := codec.ForKey[string]()
		require.NoError(t, err)
		instance, err := process.New(process.Config[string, change, string]{
			Key: func(c change) string { return c.Key }, KeyCodec: key, Setup: upsert,
		}).New([]any{operator.Collector[string](discard{})})
		require.NoError(t, err)
		var logged bytes.Buffer
		stats := &operator.Stats{}
		require.NoError(t, instance.Open(t.Context(), &operator.Runtime{
			ClusterID: "c", JobID: "j", Attempt: 1, Vertex: "v", Operator: graph.Operator{UID: "op"}, Parallelism: 1,
			MaxParallelism: keygroup.DefaultMaxParallelism, KeyGroups: keygroup.Range{Last: keygroup.DefaultMaxParallelism - 1},
			Logger: slog.New(slog.NewTextHandler(&logged, nil)), Stats: stats, Dir: dir, StateMemory: 64 << 10,
			Segments: statetest.NewStore(dir), Post: func(func() error) {},
		}))
		defer func() { require.NoError(t, instance.Close()) }()
		in := instance.Input().(operator.Collector[change])
		n := 0
		push := func(records int) time.Duration {
			began := time.Now()
			for range records {
				require.NoError(t, in.Collect(set(fmt.Sprint("key", n), "value"), operator.NoTimestamp))
				n++
			}
			return time.Since(began)
		}
		checkpoint := func(id uint64) {
			finish, err := instance.Snapshot(t.Context(), operator.Barrier{Checkpoint: id})
			require.NoError(t, err)
			_, err = finish(context.Background())
			require.NoError(t, err)
			require.NoError(t, instance.(operator.CheckpointListener).CheckpointCompleted(id))
		}

		for range 3 {
			for push(1) == 0 {
				require.Less(t, n, 10_000, "the changed state exceeds the budget, and no record waits")
			}
			require.Equal(t, 50*time.Millisecond, push(50))
			require.Len(t, stats.Waits.Current(), 1)
			require.Contains(t, stats.Waits.Current()[0].What, "a checkpoint to be completed, since changed state takes")
			checkpoint(uint64(n))
			require.Zero(t, push(50), "a completed checkpoint ends it")
			require.Empty(t, stats.Waits.Current())
		}
		require.Equal(t, 3, strings.Count(logged.String(), "slowed down by the memory budget"), "one message each time")
	})
}
