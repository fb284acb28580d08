package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const artifactAge = 200 * time.Millisecond

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
	// The files' own times are another machine's, or were made before a clock was set: they count neither way.
	put("needed", 48*time.Hour)
	for _, age := range []time.Duration{48 * time.Hour, -48 * time.Hour, 0} {
		put("used", age)
		begin := time.Now()
		put("unused", age)
		f.eventually("the binary is deleted", func() bool {
			f.manager.UseArtifact("used")
			return gone("unused")
		})
		require.GreaterOrEqual(t, time.Since(begin), artifactAge)
		require.False(t, gone("needed"))
		require.False(t, gone("used"))
	}
	f.eventually("what is not used any more goes too", func() bool { return gone("used") })
}
