package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJobBinariesThatNoJobNeedsAreDeleted(t *testing.T) {
	f := newFixture(t)
	path := func(name string) string { return filepath.Join(f.dir, "c1", "artifacts", name) }
	put := func(name string, age time.Duration) {
		require.NoError(t, os.MkdirAll(filepath.Dir(path(name)), 0o755))
		made := filepath.Join(f.dir, name) // appears with its age
		require.NoError(t, os.WriteFile(made, []byte("binary"), 0o644))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(made, at, at))
		require.NoError(t, os.Rename(made, path(name)))
	}
	gone := func(name string) bool {
		_, err := os.Stat(path(name))
		return errors.Is(err, os.ErrNotExist)
	}
	f.manager.UseArtifact("used")
	put("needed", 2*time.Hour)
	put("used", 2*time.Hour)
	put("young", 30*time.Minute)
	put("unused", 2*time.Hour)
	f.eventually("the binary is deleted", func() bool { return gone("unused") })
	put("unused", 2*time.Hour)
	f.eventually("it is deleted in another round", func() bool { return gone("unused") })
	for _, name := range []string{"needed", "used", "young"} {
		require.False(t, gone(name), name)
	}
}
