// Package blobtest is the conformance suite of buckets. Every driver passes it.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend/blob"
)

// Test checks a driver. open returns an empty bucket, openURL the one at an address; the suite closes them.
func Test(t *testing.T, open func(t *testing.T) blob.Bucket, openURL func(ctx context.Context, address string) (blob.Bucket, error)) {
	for name, test := range map[string]func(t *testing.T, b blob.Bucket){
		"what is put is there":             testPut,
		"empty and large objects":          testSizes,
		"an object is written once":        testWriteOnce,
		"one of many writers wins":         testRace,
		"a broken put leaves nothing":      testBrokenPut,
		"a cancelled put leaves nothing":   testCancelledPut,
		"absent objects":                   testAbsent,
		"a deleted object is gone":         testDelete,
		"put and delete side by side":      testPutAndDelete,
		"list yields a prefix in order":    testList,
		"list can be left":                 testListBreak,
		"bad names are refused":            testNames,
		"the address opens the same place": func(t *testing.T, b blob.Bucket) { testURL(t, b, openURL) },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			defer func() { require.NoError(t, b.Close()) }()
			test(t, b)
		})
	}
}

func put(t *testing.T, b blob.Bucket, name, content string) {
	require.NoError(t, b.Put(t.Context(), name, strings.NewReader(content)))
}

// Read returns the content of an object.
func Read(t *testing.T, b blob.Bucket, name string) string {
	r, err := b.Open(t.Context(), name)
	require.NoError(t, err)
	content, err := io.ReadAll(r)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	return string(content)
}

// List returns the names of the objects with a prefix, in the order of the listing.
func List(t *testing.T, b blob.Bucket, prefix string) (names []string) {
	for a, err := range b.List(t.Context(), prefix) {
		require.NoError(t, err)
		names = append(names, a.Name)
	}
	return names
}

func testPut(t *testing.T, b blob.Bucket) {
	put(t, b, "a/b/c", "content")
	require.Equal(t, "content", Read(t, b, "a/b/c"))
	a, err := b.Stat(t.Context(), "a/b/c")
	require.NoError(t, err)
	require.Equal(t, "a/b/c", a.Name)
	require.Equal(t, int64(7), a.Size)
	require.WithinDuration(t, time.Now(), a.ModTime, time.Hour)
	put(t, b, "with space, %2F and ü", "x")
	require.Equal(t, "x", Read(t, b, "with space, %2F and ü"))
}

func testSizes(t *testing.T, b blob.Bucket) {
	put(t, b, "empty", "")
	require.Empty(t, Read(t, b, "empty"))
	large := strings.Repeat("0123456789abcdef", 1<<18)
	put(t, b, "large", large)
	if Read(t, b, "large") != large {
		t.Fatal("a large object is read as something else than was written")
	}
}

func testWriteOnce(t *testing.T, b blob.Bucket) {
	put(t, b, "a", "first")
	require.ErrorIs(t, b.Put(t.Context(), "a", strings.NewReader("second")), blob.ErrExists)
	require.Equal(t, "first", Read(t, b, "a"))
}

func testRace(t *testing.T, b blob.Bucket) {
	var wins atomic.Int32
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() {
			errs[i] = b.Put(t.Context(), "x/y", strings.NewReader(fmt.Sprint(i)))
			if errs[i] == nil {
				wins.Store(int32(i))
			}
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			require.ErrorIs(t, err, blob.ErrExists)
		}
	}
	require.Equal(t, 1, won)
	require.Equal(t, fmt.Sprint(wins.Load()), Read(t, b, "x/y"))
}

var errBroken = errors.New("broken")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func testBrokenPut(t *testing.T, b blob.Bucket) {
	r := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), brokenReader{})
	require.ErrorIs(t, b.Put(t.Context(), "a/b", r), errBroken)
	require.Empty(t, List(t, b, ""))
	put(t, b, "a/b", "now")
	require.Equal(t, "now", Read(t, b, "a/b"))
}

func testCancelledPut(t *testing.T, b blob.Bucket) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.Put(ctx, "a", strings.NewReader("x")), context.Canceled)
	require.Empty(t, List(t, b, ""))
}

func testAbsent(t *testing.T, b blob.Bucket) {
	put(t, b, "dir/object", "x")
	for _, name := range []string{"none", "dir", "dir/none", "dir/object/below"} {
		_, err := b.Open(t.Context(), name)
		require.ErrorIs(t, err, blob.ErrNotExist, name)
		_, err = b.Stat(t.Context(), name)
		require.ErrorIs(t, err, blob.ErrNotExist, name)
		require.NoError(t, b.Delete(t.Context(), name), name)
	}
	require.Equal(t, "x", Read(t, b, "dir/object"))
}

func testDelete(t *testing.T, b blob.Bucket) {
	put(t, b, "d/a", "x")
	put(t, b, "d/b", "y")
	require.NoError(t, b.Delete(t.Context(), "d/a"))
	require.Equal(t, []string{"d/b"}, List(t, b, ""))
	require.NoError(t, b.Delete(t.Context(), "d/b"))
	require.Empty(t, List(t, b, ""))
	put(t, b, "d", "an object where a folder was")
	require.Equal(t, []string{"d"}, List(t, b, ""))
}

func testPutAndDelete(t *testing.T, b blob.Bucket) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 10 {
				name := fmt.Sprintf("shared/folder/%d-%d", i, n)
				if err := b.Put(t.Context(), name, strings.NewReader("x")); err != nil {
					t.Error(err)
				}
				if err := b.Delete(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, List(t, b, ""))
}

func testList(t *testing.T, b blob.Bucket) {
	names := []string{"a", "a-b/x", "a/b", "a/b.c", "a/b/c", "b/1", "b/10", "b/2"}
	for i := range names {
		if names[i] != "a" && names[i] != "a/b" { // a file system cannot have both a and a/b
			put(t, b, names[i], names[i])
		}
	}
	require.Equal(t, []string{"a-b/x", "a/b.c", "a/b/c", "b/1", "b/10", "b/2"}, List(t, b, ""))
	require.Equal(t, []string{"a-b/x", "a/b.c", "a/b/c"}, List(t, b, "a"))
	require.Equal(t, []string{"a/b.c", "a/b/c"}, List(t, b, "a/b"))
	require.Equal(t, []string{"b/1", "b/10"}, List(t, b, "b/1"))
	require.Empty(t, List(t, b, "c/"))
}

func testListBreak(t *testing.T, b blob.Bucket) {
	put(t, b, "x/1", "")
	put(t, b, "x/2", "")
	next, stop := iter.Pull2(b.List(t.Context(), "x/"))
	defer stop()
	a, err, ok := next()
	require.True(t, ok)
	require.NoError(t, err)
	require.Equal(t, "x/1", a.Name)
}

func testNames(t *testing.T, b blob.Bucket) {
	for _, name := range []string{"", "/", "/a", "a/", "a//b", "../a", "a/../b", ".", "a/./b", "a\x00b", ".weir-x", "a/.weir-x"} {
		require.ErrorIs(t, b.Put(t.Context(), name, strings.NewReader("x")), blob.ErrName, "%q", name)
		_, err := b.Open(t.Context(), name)
		require.ErrorIs(t, err, blob.ErrName, "%q", name)
		require.ErrorIs(t, b.Delete(t.Context(), name), blob.ErrName, "%q", name)
	}
}

func testURL(t *testing.T, b blob.Bucket, openURL func(ctx context.Context, address string) (blob.Bucket, error)) {
	put(t, b, "a", "x")
	same, err := openURL(t.Context(), b.URL())
	require.NoError(t, err)
	require.Equal(t, "x", Read(t, same, "a"))
	require.Equal(t, b.URL(), same.URL())
	require.NoError(t, same.Close())

	put(t, b, "folder/b", "y")
	below, err := openURL(t.Context(), blob.Join(b.URL(), "folder"))
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, List(t, below, ""))
	require.Equal(t, "y", Read(t, below, "b"))
	require.NoError(t, below.Close())
}
