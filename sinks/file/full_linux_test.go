package filesink_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// A disk that is full is waited for: it uses up none of the restarts that a job is allowed.
func TestFullDiskIsNotTheJobsFault(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	a := start[int](t, lines(dir), deployment(1, nil))
	a.Write(1)
	ballast, err := os.Create(filepath.Join(dir, "ballast"))
	require.NoError(t, err)
	_, err = ballast.Write(make([]byte, 128<<10))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, ballast.Close())

	full := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
	}
	_, err = a.TryBarrier(1)
	full(err)
	_, err = sinktest.Open[int](t, t.Context(), lines(dir), deployment(2, nil))
	full(err)
	require.NoError(t, os.Remove(ballast.Name()))
	start[int](t, lines(dir), deployment(3, nil, sinktest.Former(1), sinktest.Former(2)))
}
