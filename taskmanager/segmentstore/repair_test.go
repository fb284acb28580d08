package segmentstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	stateseg "github.com/weir-stream/weir/statebackend/segment"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

const repairKeys = 20_000

type counts struct {
	*statebackend.Backend[uint64]
	v *statebackend.Value[uint64, string]
}

// openCounts opens a state that reads its rows from files.
func openCounts(t *testing.T, scope *segmentstore.Scope, attempt int, restored ...*snapshotv1.KeyedSnapshot) counts {
	kc, err := codec.ForKey[uint64]()
	require.NoError(t, err)
	vc, err := codec.For[string]()
	require.NoError(t, err)
	b := statebackend.New(statebackend.Config{
		Operator: "count", KeyGroups: keygroup.Range{Last: keygroup.DefaultMaxParallelism - 1}, Dir: t.TempDir(),
		NamePrefix: fmt.Sprintf("c/jobs/j/state/%d/v-0/count", attempt), Segments: scope, Restored: restored, MemoryBudget: 64 << 10,
	}, kc)
	c := counts{b, statebackend.NewValue(b, "v", vc)}
	require.NoError(t, c.Open(context.Background()))
	return c
}

func valueOf(k uint64) string { return fmt.Sprintf("%050d", k) }

// readAll looks every key up: it is right or an error.
func (c counts) readAll(t *testing.T) error {
	for k := range uint64(repairKeys) {
		v, ok, err := c.v.Get(k)
		if err != nil {
			return err
		}
		require.True(t, ok, "key %d is hidden", k)
		require.Equal(t, valueOf(k), v)
	}
	return nil
}

// What damages a local copy after a task has opened it is an error of the task and no wrong row; the next attempt has the copy read whole,
// replaced from storage, and every row right.
func TestADamagedCopyOfARunningTaskIsReplaced(t *testing.T) {
	for name, damage := range map[string]func(content []byte){
		"a byte of each block": func(content []byte) {
			for at := 2*os.Getpagesize() + 300; at < len(content); at += 512 {
				content[at] ^= 1
			}
		},
		"headers of pages": func(content []byte) {
			for at := 2 * os.Getpagesize(); at < len(content); at += os.Getpagesize() {
				content[at+10] ^= 0x55
			}
		},
		"zeros": func(content []byte) { clear(content) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			store := f.open(t, 0)
			scope := store.Scope()
			first := openCounts(t, scope, 1)
			for k := range uint64(repairKeys) {
				require.NoError(t, first.v.Put(k, valueOf(k)))
			}
			h, err := first.Freeze(1, false).Write(t.Context())
			require.NoError(t, err)
			first.CheckpointCompleted(1)
			require.NoError(t, first.readAll(t))

			files, err := filepath.Glob(filepath.Join(f.cache, "*.seg"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, path := range files {
				info, err := os.Stat(path)
				require.NoError(t, err)
				content, err := os.ReadFile(path)
				require.NoError(t, err)
				damage(content)
				overwrite(t, path, content)
				require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime())) // the disk did it, nobody wrote
			}
			err = first.readAll(t)
			require.ErrorIs(t, err, stateseg.ErrCorrupt)
			var lost *statebackend.LostError
			require.NotErrorAs(t, err, &lost, "a restart mends it")
			require.NoError(t, first.Close())
			scope.Close()

			scope = store.Scope()
			defer scope.Close()
			before := store.Stats()
			second := openCounts(t, scope, 2, h)
			require.NoError(t, second.readAll(t))
			require.NoError(t, second.Close())
			require.Positive(t, store.Stats().DownloadedBytes-before.DownloadedBytes)
		})
	}
}

// overwrite changes a file in place.
func overwrite(t *testing.T, path string, content []byte) {
	require.NoError(t, os.Chmod(path, 0o600))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(content, 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
