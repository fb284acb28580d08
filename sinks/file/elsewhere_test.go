package filesink_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// unmount leaves an empty directory where dir was, as an unmounted file system does; mount brings it back.
func unmount(t *testing.T, dir string) (mount func()) {
	t.Helper()
	require.NoError(t, os.Rename(dir, dir+".away"))
	require.NoError(t, os.Mkdir(dir, 0o755))
	return func() {
		require.NoError(t, os.RemoveAll(dir))
		require.NoError(t, os.Rename(dir+".away", dir))
	}
}

// requireElsewhere wants an error that proves no loss, that is waited out and not repeated in place.
func requireElsewhere(t *testing.T, err error) {
	t.Helper()
	require.ErrorContains(t, err, "is not the place that the job writes to")
	require.NotErrorIs(t, err, sinks.ErrLost)
	require.ErrorIs(t, err, operator.ErrRefused)
	require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
}

// prepared writes three transactions, of which two are committed, and returns what the third checkpoint lists.
func prepared(t *testing.T, dir string) (restored []*snapshotv1.Committable) {
	t.Helper()
	a := start[int](t, lines(dir), deployment(1, nil))
	for n := range uint64(3) {
		a.Write(int(n))
		restored = a.Barrier(n + 1)
		if n < 2 {
			a.Commit(n + 1)
		}
	}
	a.Drop()
	return restored
}

func TestWhatIsNotMountedIsNotLost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	restored := prepared(t, dir)
	mount := unmount(t, dir)

	_, err := sinktest.Open[int](t, t.Context(), lines(dir), deployment(2, restored))
	requireElsewhere(t, err)
	require.ErrorContains(t, err, dir)
	d := deployment(3, restored)
	d.SettleOnly = true
	settling, err := sinktest.Open[int](t, t.Context(), lines(dir), d)
	require.NoError(t, err)
	requireElsewhere(t, settling.Instance.(operator.Committer).RecoverCommit(t.Context(), restored))
	_, err = settling.Instance.(operator.TransactionInspector).InspectTransactions(t.Context(), restored, operator.Scope{Parallelism: 1})
	requireElsewhere(t, err)
	require.Empty(t, relative(t, dir))

	mount()
	start[int](t, lines(dir), deployment(4, restored, sinktest.Former(1)))
	got, err := readNumbers(dir)
	require.NoError(t, err)
	require.ElementsMatch(t, []int{0, 1, 2}, got)
}

// Where everything was removed for good, a person can say so.
func TestEmptiedDirectoryIsALossOnceItIsVouchedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	restored := prepared(t, dir)
	fences, err := filepath.Glob(filepath.Join(dir, ".weir", "*", "fence"))
	require.NoError(t, err)
	require.Len(t, fences, 1)
	unmount(t, dir)
	require.NoError(t, os.MkdirAll(filepath.Dir(fences[0]), 0o755))
	require.NoError(t, os.WriteFile(fences[0], []byte("0\n"), 0o600))
	a, err := sinktest.Open[int](t, t.Context(), lines(dir), deployment(2, restored))
	require.NoError(t, err)
	require.ErrorIs(t, a.Instance.(operator.Committer).RecoverCommit(t.Context(), restored), sinks.ErrLost)
}

func TestRunningSinkNoticesAnotherDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	a := start[int](t, lines(dir), deployment(1, nil))
	a.Write(1)
	a.Barrier(1)
	unmount(t, dir)
	requireElsewhere(t, a.Collector.Collect(2, operator.NoTimestamp))
	requireElsewhere(t, a.TryCommit(1))
}

func TestSubtasksMustShareTheDirectory(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	open := func(dir string, attempt uint64, subtask int) error {
		d := deployment(attempt, nil)
		d.Subtask, d.Parallelism = subtask, 2
		a, err := sinktest.Open[int](t, t.Context(), lines(dir), d)
		require.NoError(t, err)
		return a.Instance.(operator.Committer).RecoverAbort(t.Context(), operator.Scope{Subtask: subtask, Parallelism: 2})
	}
	require.NoError(t, open(dir, 1, 0))
	require.NoError(t, open(dir, 1, 1))
	require.NoError(t, open(other, 2, 0))
	requireElsewhere(t, open(dir, 2, 1))
	require.NoError(t, open(dir, 3, 0))
	requireElsewhere(t, open(other, 3, 1))
}
