package segment

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The very first page is read no less carefully than the others.
func TestAFileThatIsCutBeforeItsFirstPageIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	w := NewWriter(path, 0, func(k []byte) int { return len(k) })
	require.NoError(t, w.Add(AppendPrefix(nil, 1, 1), []byte("x"), false))
	r, err := w.Finish(nil)
	require.NoError(t, err)
	p, err := mapPages(path, r.Size)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, 0))
	_, err = openPages(path, p)
	require.ErrorIs(t, err, ErrCorrupt)
	require.NoError(t, p.close())
}
