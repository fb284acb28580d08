package atomicfile_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/atomicfile"
)

func names(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, atomicfile.Write(path, []byte("a longer old content"), 0o600))
	require.NoError(t, atomicfile.Write(path, []byte("new"), 0o640))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(content))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())
	require.Equal(t, []string{"f"}, names(t, filepath.Dir(path)))
}

func TestAFailedWriteLeavesTheOldContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, atomicfile.Write(path, []byte("old"), 0o600))
	broken := errors.New("broken")
	err := atomicfile.WriteFunc(path, 0o600, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return broken
	})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, path)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(content))
	require.Equal(t, []string{"f"}, names(t, filepath.Dir(path)))
	require.Error(t, atomicfile.Write(filepath.Join(path, "below"), nil, 0o600))
}

func TestMkdirAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	require.NoError(t, atomicfile.MkdirAll(dir, 0o755))
	require.NoError(t, atomicfile.MkdirAll(dir, 0o755))
	require.DirExists(t, dir)
}
