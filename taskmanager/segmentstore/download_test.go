package segmentstore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// slowBucket takes a second to begin with each file.
type slowBucket struct {
	blob.Bucket
	open, most atomic.Int32
}

type slowReader struct {
	io.ReadCloser
	bucket *slowBucket
}

func (b *slowBucket) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	if n := b.open.Add(1); n > b.most.Load() {
		b.most.Store(n)
	}
	time.Sleep(time.Second)
	r, err := b.Bucket.Open(ctx, name)
	return slowReader{r, b}, err
}

func (r slowReader) Close() error {
	r.bucket.open.Add(-1)
	return r.ReadCloser.Close()
}

// fetchAll fetches n files of size bytes at once in a store of its own and tells how long that took.
func fetchAll(t *testing.T, n, size int, cfg segmentstore.Config) (took time.Duration, most int32) {
	f := newFixture(t)
	var segments []*snapshotv1.Segment
	for i := range n {
		segments = append(segments, f.store(t, fmt.Sprintf("c/%d", i), make([]byte, size)))
	}
	synctest.Test(t, func(t *testing.T) {
		slow := &slowBucket{Bucket: f.bucket.Bucket}
		cfg.Dir, cfg.Bucket = f.cache, slow
		s, err := segmentstore.Open(cfg)
		require.NoError(t, err)
		began := time.Now()
		var all sync.WaitGroup
		for _, seg := range segments {
			all.Go(func() {
				_, err := s.Fetch(t.Context(), seg)
				require.NoError(t, err)
			})
		}
		all.Wait()
		took, most = time.Since(began), slow.most.Load()
		require.NoError(t, s.Close())
	})
	return took, most
}

func TestFilesAreDownloadedSideBySideUpToABound(t *testing.T) {
	for _, k := range []int{1, 4, 8} {
		took, most := fetchAll(t, 24, 10, segmentstore.Config{Downloads: k})
		require.Equal(t, time.Duration(24/k)*time.Second, took, "%d at a time", k)
		require.EqualValues(t, k, most)
	}
}

func TestDownloadsShareTheirRate(t *testing.T) {
	took, _ := fetchAll(t, 16, 100_000, segmentstore.Config{Downloads: 4, DownloadRate: 200_000})
	// 8 s of bytes, and of waiting for storage between 1 s, when the first four have begun, and 4 s.
	require.GreaterOrEqual(t, took, 9*time.Second)
	require.LessOrEqual(t, took, 12*time.Second)
}

func TestACopyIsFoundByItsContent(t *testing.T) {
	f := newFixture(t)
	data := []byte("what a savepoint has under a name of its own")
	s := f.open(t, 0)
	worker := s.Scope()
	require.NoError(t, worker.Upload(t.Context(), local(t, data), "c/jobs/j/state/1", uint64(len(data)), crcOf(data)))
	path, err := worker.Fetch(t.Context(), segment("c/jobs/j/state/1", data))
	require.NoError(t, err)

	elsewhere := func(name string) *snapshotv1.Segment {
		seg := segment(name, data)
		seg.Sha256 = digest(data)
		return seg
	}
	for _, s := range []*segmentstore.Store{s, f.open(t, 0)} { // the second one has only the directory to know it from
		got, err := s.Scope().Fetch(t.Context(), elsewhere("file:///elsewhere/savepoint/files/000001"))
		require.NoError(t, err)
		require.Equal(t, path, got)
	}
	require.Zero(t, f.bucket.opens.Load())

	// What is downloaded for one name is there for another, and held for as long as either is.
	other := []byte("another")
	f.store(t, "c/a", other)
	a, b := segment("c/a", other), segment("c/b", other)
	a.Sha256, b.Sha256 = digest(other), digest(other)
	small := f.open(t, 1)
	one, two := small.Scope(), small.Scope()
	path, err = one.Fetch(t.Context(), a)
	require.NoError(t, err)
	got, err := two.Fetch(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, path, got)
	one.Close()
	require.FileExists(t, path)
	two.Close()
	require.NoFileExists(t, path)
}

func TestAContentHashIsChecked(t *testing.T) {
	f := newFixture(t)
	data := []byte("0123456789")
	seg := f.store(t, "c/x", data)
	seg.Sha256 = digest([]byte("something else with the same CRC"))
	_, err := f.open(t, 0).Fetch(t.Context(), seg)
	require.ErrorIs(t, err, segmentstore.ErrCorrupt)
	require.ErrorContains(t, err, "SHA-256")
}

// A disk changes bytes without a trace in size or times.
func rot(t *testing.T, path string) {
	info, err := os.Stat(path)
	require.NoError(t, err)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data[len(data)/2] ^= 0x10
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, data, 0o600))
	require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
}

func TestSilentDamageIsFoundInTheBackground(t *testing.T) {
	f := newFixture(t)
	data := make([]byte, 1_000_000)
	seg := f.store(t, "c/needed", data)
	idle := f.store(t, "c/idle", []byte("nobody holds it"))
	first := f.open(t, 0)
	path, err := first.Fetch(t.Context(), seg)
	require.NoError(t, err)
	idlePath, err := first.Fetch(t.Context(), idle)
	require.NoError(t, err)
	require.NoError(t, first.Close())
	synctest.Test(t, func(t *testing.T) {
		s, err := segmentstore.Open(segmentstore.Config{Dir: f.cache, Bucket: f.bucket, VerifyRate: 100_000})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.Fetch(t.Context(), seg)
		require.NoError(t, err)
		began := time.Now()
		for s.Stats().VerifiedBytes < 1_000_015 {
			time.Sleep(time.Second)
		}
		require.InDelta(t, 10, time.Since(began).Seconds(), 1.5, "seconds for 1 MB at 100 kB/s")
		require.Zero(t, s.Stats().Damaged)
		rot(t, path)
		rot(t, idlePath)
		_, err = s.Fetch(t.Context(), seg)
		require.NoError(t, err, "the damage does not show")
		for s.Stats().Damaged < 2 {
			time.Sleep(time.Minute)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, data, got, "who needs it has a good copy again")
		require.NoFileExists(t, idlePath)
	})
}

func TestADoubtedCopyIsReadBeforeItsNextUse(t *testing.T) {
	f := newFixture(t)
	data := []byte("0123456789")
	seg := f.store(t, "c/x", data)
	scope := f.open(t, 0).Scope()
	path, err := scope.Fetch(t.Context(), seg)
	require.NoError(t, err)
	require.NoError(t, scope.Distrust(t.Context(), "c/x", "c/unknown", ""))
	_, err = scope.Fetch(t.Context(), seg)
	require.NoError(t, err)
	require.EqualValues(t, 1, f.bucket.opens.Load(), "sound: not downloaded again")

	rot(t, path)
	require.NoError(t, scope.Distrust(t.Context(), "c/x"))
	path, err = scope.Fetch(t.Context(), seg)
	require.NoError(t, err)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, data, got)
	require.EqualValues(t, 2, f.bucket.opens.Load())
}
