package segmentstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// countingBucket counts reads and can hold or fail them.
type countingBucket struct {
	blob.Bucket
	opens  atomic.Int32
	gate   chan struct{}
	putErr error
}

func (b *countingBucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	b.opens.Add(1)
	if b.gate != nil {
		select {
		case <-b.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b.Bucket.Open(ctx, name)
}

func (b *countingBucket) Put(ctx context.Context, name string, r io.Reader) error {
	if b.putErr != nil {
		return b.putErr
	}
	return b.Bucket.Put(ctx, name, r)
}

type fixture struct {
	root   string
	bucket *countingBucket
	cache  string
}

func newFixture(t *testing.T) *fixture {
	root := t.TempDir()
	b, err := blob.OpenURL(t.Context(), "file://"+root)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return &fixture{root: root, bucket: &countingBucket{Bucket: b}, cache: filepath.Join(t.TempDir(), "cache")}
}

func (f *fixture) open(t *testing.T, maxBytes int64) *segmentstore.Store {
	s, err := segmentstore.Open(segmentstore.Config{Dir: f.cache, Bucket: f.bucket, MaxBytes: maxBytes})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func crcOf(data []byte) uint32 { return crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) }

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

func segment(name string, data []byte) *snapshotv1.Segment {
	return &snapshotv1.Segment{Name: name, Size: uint64(len(data)), Crc32C: crcOf(data)}
}

func local(t *testing.T, data []byte) string {
	p := filepath.Join(t.TempDir(), "segment")
	require.NoError(t, os.WriteFile(p, data, 0o600))
	return p
}

func (f *fixture) store(t *testing.T, name string, data []byte) *snapshotv1.Segment {
	require.NoError(t, f.bucket.Put(t.Context(), name, bytes.NewReader(data)))
	return segment(name, data)
}

func TestUploadIsDurableAndTakesTheFileOver(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	data := bytes.Repeat([]byte("state"), 1000)
	path := local(t, data)
	require.NoError(t, s.Upload(t.Context(), path, "c/jobs/j/state/a", uint64(len(data)), crcOf(data)))
	require.NoFileExists(t, path)
	stored, err := os.ReadFile(filepath.Join(f.root, "c/jobs/j/state/a"))
	require.NoError(t, err)
	require.Equal(t, data, stored)

	got, err := s.Fetch(t.Context(), segment("c/jobs/j/state/a", data))
	require.NoError(t, err)
	cached, err := os.ReadFile(got)
	require.NoError(t, err)
	require.Equal(t, data, cached)
	require.Zero(t, f.bucket.opens.Load(), "an uploaded file is not downloaded")
}

func TestUploadRefusesAFileThatIsNotWhatItShouldBe(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	data := []byte("0123456789")
	for what, c := range map[string]struct {
		size uint64
		crc  uint32
	}{
		"other checksum": {10, crcOf(data) + 1},
		"shorter":        {9, crcOf(data[:9])},
		"longer":         {11, crcOf(data)},
	} {
		path := local(t, data)
		err := s.Upload(t.Context(), path, "c/x", c.size, c.crc)
		require.ErrorIs(t, err, segmentstore.ErrCorrupt, what)
		require.FileExists(t, path, what)
		require.NoFileExists(t, filepath.Join(f.root, "c/x"), what)
	}
}

func TestUploadRepeated(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	data := []byte("content")
	f.store(t, "c/x", data)
	require.NoError(t, s.Upload(t.Context(), local(t, data), "c/x", 7, crcOf(data)), "the same content is there already")
	other := []byte("other!!")
	err := s.Upload(t.Context(), local(t, other), "c/x", 7, crcOf(other))
	require.ErrorIs(t, err, blob.ErrExists)
	require.ErrorIs(t, err, segmentstore.ErrCorrupt)
}

func TestUploadErrorNamesTheFullStorage(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	for _, full := range []error{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, fmt.Errorf("put: %w", blob.ErrNoSpace)} {
		f.bucket.putErr = full
		err := s.Upload(t.Context(), local(t, []byte("a")), "c/x", 1, crcOf([]byte("a")))
		var se *statebackend.StorageError
		require.ErrorAs(t, err, &se)
		require.ErrorContains(t, err, "no space left on")
		require.ErrorContains(t, err, f.bucket.URL())
	}
	f.bucket.putErr = nil
	require.NoError(t, s.Upload(t.Context(), local(t, []byte("a")), "c/x", 1, crcOf([]byte("a"))), "space came back")
}

func TestFetchOnceForConcurrentCallers(t *testing.T) {
	f := newFixture(t)
	f.bucket.gate = make(chan struct{})
	s := f.open(t, 0)
	seg := f.store(t, "c/x", []byte("content"))
	var callers sync.WaitGroup
	paths := make([]string, 8)
	for i := range paths {
		callers.Go(func() { paths[i], _ = s.Fetch(t.Context(), seg) })
	}
	impatient, cancel := context.WithCancel(t.Context())
	var impatientErr error
	callers.Go(func() { _, impatientErr = s.Fetch(impatient, seg) })
	require.Eventually(t, func() bool { return f.bucket.opens.Load() > 0 }, 5*time.Second, time.Millisecond)
	cancel()
	close(f.bucket.gate)
	callers.Wait()
	require.True(t, impatientErr == nil || errors.Is(impatientErr, context.Canceled))
	for _, p := range paths {
		require.NotEmpty(t, p)
		require.Equal(t, paths[0], p)
	}
	require.EqualValues(t, 1, f.bucket.opens.Load())
}

func TestFetchRefusesCorruptStorage(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	good := []byte("0123456789")
	for what, stored := range map[string][]byte{"flipped": []byte("0123x56789"), "short": good[:4], "long": []byte("0123456789ab"), "empty": {}} {
		require.NoError(t, f.bucket.Put(t.Context(), "c/"+what, bytes.NewReader(stored)))
		_, err := s.Fetch(t.Context(), segment("c/"+what, good))
		require.ErrorIs(t, err, segmentstore.ErrCorrupt, what)
		require.ErrorContains(t, err, "c/"+what)
		var lost *statebackend.LostError
		require.ErrorAs(t, err, &lost, what)
	}
	left, err := os.ReadDir(f.cache)
	require.NoError(t, err)
	require.Empty(t, left, "nothing of a refused download stays")

	var lost *statebackend.LostError
	var trouble *statebackend.StorageError
	_, err = s.Fetch(t.Context(), segment("c/absent", good))
	require.ErrorAs(t, err, &trouble, "storage without the cluster's probe is not mounted, and says nothing of the file")
	require.NotErrorIs(t, err, blob.ErrNotExist)
	require.NoError(t, f.bucket.Put(t.Context(), "c/probe", bytes.NewReader(nil)))
	_, err = s.Fetch(t.Context(), segment("c/absent", good))
	require.ErrorIs(t, err, blob.ErrNotExist)
	require.ErrorAs(t, err, &lost)
	require.Equal(t, 1, strings.Count(err.Error(), "c/absent"), err.Error())
}

func TestFetchVouchedFileUnread(t *testing.T) {
	f := newFixture(t)
	seg := f.store(t, "c/x", []byte("content"))
	path, err := f.open(t, 0).Fetch(t.Context(), seg)
	require.NoError(t, err)

	again := f.open(t, 0)
	got, err := again.Fetch(t.Context(), seg)
	require.NoError(t, err)
	require.Equal(t, path, got)
	require.EqualValues(t, 1, f.bucket.opens.Load())
	require.EqualValues(t, 1, again.Stats().Hits)
}

func TestFetchReplacesADamagedCopy(t *testing.T) {
	data := []byte("0123456789")
	for what, damage := range map[string]func(t *testing.T, path string){
		"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 3)) },
		"rewritten": func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.WriteFile(path, []byte("012345678x"), 0o600))
		},
		"touched and changed": func(t *testing.T, path string) {
			require.NoError(t, os.Chmod(path, 0o600))
			require.NoError(t, os.WriteFile(path, []byte("x123456789"), 0o600))
		},
		"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			s := f.open(t, 0)
			seg := f.store(t, "c/x", data)
			path, err := s.Fetch(t.Context(), seg)
			require.NoError(t, err)
			damage(t, path)
			path, err = s.Fetch(t.Context(), seg)
			require.NoError(t, err)
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, data, got)
			require.EqualValues(t, 2, f.bucket.opens.Load())
		})
	}
}

func TestAnotherBootReadsTheCopyAgain(t *testing.T) {
	f := newFixture(t)
	seg := f.store(t, "c/x", []byte("content"))
	_, err := f.open(t, 0).Fetch(t.Context(), seg)
	require.NoError(t, err)
	sidecars, err := filepath.Glob(filepath.Join(f.cache, "*.ok"))
	require.NoError(t, err)
	require.Len(t, sidecars, 1)
	raw, err := os.ReadFile(sidecars[0])
	require.NoError(t, err)
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Skip("no boot id on this system")
	}
	old := bytes.Replace(raw, bytes.TrimSpace(boot), []byte("another-boot"), 1)
	require.NotEqual(t, raw, old)
	require.NoError(t, os.WriteFile(sidecars[0], old, 0o600))

	s := f.open(t, 0)
	_, err = s.Fetch(t.Context(), seg)
	require.NoError(t, err)
	require.Zero(t, s.Stats().Hits, "read, not believed")
	require.EqualValues(t, 1, f.bucket.opens.Load(), "but not downloaded again")
	_, err = s.Fetch(t.Context(), seg)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Stats().Hits)
}

func TestEvictionSparesWhatScopesHold(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 25)
	held, passing := s.Scope(), s.Scope()
	a := f.store(t, "c/a", []byte("aaaaaaaaaa"))
	b := f.store(t, "c/b", []byte("bbbbbbbbbb"))
	c := f.store(t, "c/c", []byte("cccccccccc"))
	pathA, err := held.Fetch(t.Context(), a)
	require.NoError(t, err)
	pathB, err := passing.Fetch(t.Context(), b)
	require.NoError(t, err)
	pathC, err := passing.Fetch(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 30, s.Bytes(), "all in use: the bound waits")

	mapped, err := os.Open(pathB)
	require.NoError(t, err)
	defer mapped.Close()
	passing.Close()
	require.EqualValues(t, 20, s.Bytes())
	require.FileExists(t, pathA)
	require.NoFileExists(t, pathB, "the least recently used one went")
	require.FileExists(t, pathC)
	still, err := io.ReadAll(mapped)
	require.NoError(t, err)
	require.Equal(t, "bbbbbbbbbb", string(still), "who has it open keeps it")
}

func TestOpenRemovesLeftovers(t *testing.T) {
	f := newFixture(t)
	seg := f.store(t, "c/x", []byte("content"))
	path, err := f.open(t, 0).Fetch(t.Context(), seg)
	require.NoError(t, err)
	for _, name := range []string{"half.tmp", "nosidecar.seg", "nodata.ok"} {
		require.NoError(t, os.WriteFile(filepath.Join(f.cache, name), []byte("x"), 0o600))
	}
	s := f.open(t, 0)
	left, err := os.ReadDir(f.cache)
	require.NoError(t, err)
	require.Len(t, left, 2)
	require.FileExists(t, path)
	require.EqualValues(t, 7, s.Bytes())
}

func TestNameThatIsAURL(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 0)
	elsewhere := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(elsewhere, "sp/state"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "sp/state/1"), []byte("saved"), 0o600))
	path, err := s.Fetch(t.Context(), segment("file://"+elsewhere+"/sp/state/1", []byte("saved")))
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "saved", string(got))
	_, err = s.Fetch(t.Context(), segment("ftp://host/x", []byte("saved")))
	require.ErrorContains(t, err, "ftp")
}

func TestCloseEndsADownload(t *testing.T) {
	f := newFixture(t)
	f.bucket.gate = make(chan struct{})
	s, err := segmentstore.Open(segmentstore.Config{Dir: f.cache, Bucket: f.bucket})
	require.NoError(t, err)
	seg := f.store(t, "c/x", []byte("content"))
	result := make(chan error, 1)
	go func() {
		_, err := s.Fetch(context.Background(), seg)
		result <- err
	}()
	require.Eventually(t, func() bool { return f.bucket.opens.Load() > 0 }, 5*time.Second, time.Millisecond)
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-result, context.Canceled)
	_, err = s.Fetch(context.Background(), seg)
	require.ErrorIs(t, err, segmentstore.ErrClosed)
}

func TestInlineSegmentHasNoFile(t *testing.T) {
	_, err := newFixture(t).open(t, 0).Fetch(t.Context(), &snapshotv1.Segment{Inline: []byte("x"), Size: 1})
	require.ErrorContains(t, err, "inline")
}
