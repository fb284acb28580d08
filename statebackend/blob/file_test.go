package blob_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/statebackend/blob/blobtest"
)

func open(t *testing.T, dir string) blob.Bucket {
	b, err := blob.OpenURL(t.Context(), "file://"+strings.ReplaceAll(dir, " ", "%20"))
	require.NoError(t, err)
	return b
}

func TestFileBucket(t *testing.T) {
	blobtest.Test(t, func(t *testing.T) blob.Bucket { return open(t, filepath.Join(t.TempDir(), "new", "root dir")) }, blob.OpenURL)
}

func TestUnknownSchemesAreRefused(t *testing.T) {
	_, err := blob.OpenURL(t.Context(), "s3://bucket/x")
	require.ErrorContains(t, err, `unknown scheme "s3"; known here are: file`)
	_, err = blob.OpenURL(t.Context(), "/var/lib/weir")
	require.ErrorContains(t, err, "file:///absolute/path")
	_, err = blob.OpenURL(t.Context(), "file://relative/path")
	require.ErrorContains(t, err, "three slashes")
}

func TestUnfinishedObjectsAreHiddenAndRemovedWhenOld(t *testing.T) {
	dir := t.TempDir()
	old, fresh := filepath.Join(dir, ".weir-tmp-1"), filepath.Join(dir, ".weir-tmp-2")
	require.NoError(t, os.WriteFile(old, nil, 0o644))
	require.NoError(t, os.WriteFile(fresh, nil, 0o644))
	require.NoError(t, os.Chtimes(old, time.Time{}, time.Now().Add(-48*time.Hour)))
	b := open(t, dir)
	for a, err := range b.List(t.Context(), "") {
		t.Fatalf("listed %q, %v", a.Name, err)
	}
	require.NoFileExists(t, old)
	require.FileExists(t, fresh)
	require.ErrorIs(t, b.Put(t.Context(), ".weir-tmp-3", strings.NewReader("")), blob.ErrName)
}

// /dev/full answers every write with ENOSPC; a bucket cannot live there, but the mapping of the error can be seen on a small tmpfs,
// which needs root.
func TestAFullDiskIsNamed(t *testing.T) {
	dir := t.TempDir()
	unmount := mountSmall(t, dir)
	defer unmount()
	b := open(t, dir)
	err := b.Put(t.Context(), "a/b", strings.NewReader(strings.Repeat("x", 1<<20)))
	require.ErrorIs(t, err, blob.ErrNoSpace)
	require.ErrorContains(t, err, dir)
	require.NoError(t, b.Put(t.Context(), "a/c", strings.NewReader("fits")))
}
