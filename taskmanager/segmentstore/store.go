package segmentstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
)

// Errors that callers tell apart. They arrive inside a [statebackend.StorageError] or a
// [statebackend.LostError].
var (
	// ErrCorrupt: a file's size or checksum is not that of its segment.
	ErrCorrupt = errors.New("content does not match its checksum")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("segment store is closed")
)

// maxUploads bounds how many files are uploaded at a time, and with it the buffers of storage clients. An upload waits for an fsync or for
// answers most of the time.
const maxUploads = 16

// defaultDownloads is enough to fill a network whatever the latency of storage, and few enough for the files being written.
const defaultDownloads = 8

// Config configures a Store.
type Config struct {
	// Dir is the cache directory. The store owns it alone and creates it.
	Dir string
	// Bucket is the root of checkpoint storage. The caller closes it after the store.
	Bucket blob.Bucket
	// MaxBytes bounds the cache; 0 means no bound. Files held by scopes stay beyond the bound.
	MaxBytes int64
	// Downloads bounds how many files are downloaded at a time; 0 means 8.
	Downloads int
	// DownloadRate bounds what all downloads together read, in bytes per second; 0 means no bound.
	DownloadRate int64
	// VerifyRate is at how many bytes per second local copies are read again in the background; 0 means not at all.
	VerifyRate int64
	// OpenBucket opens the bucket of a name that is a full URL; nil means [blob.OpenURL].
	OpenBucket func(ctx context.Context, url string) (blob.Bucket, error)
	Logger     *slog.Logger
}

// Store uploads, fetches and caches state files.
type Store struct {
	cfg     Config
	boot    string
	life    context.Context //nolint:containedctx // it ends with Close; a flight outlives its first caller
	end     context.CancelFunc
	flights singleflight.Group
	running sync.WaitGroup
	whole   *Scope
	// downloads has a place for each download that may run; who finds none waits.
	downloads    chan struct{}
	uploads      chan struct{} // likewise
	downloadPace pace
	verifyPace   pace
	stats        struct{ uploaded, downloaded, hits, verified, damaged atomic.Uint64 }

	mu      sync.Mutex
	closed  bool
	cache   cache
	buckets map[string]blob.Bucket // by directory URL
}

var (
	_ statebackend.SegmentStore = (*Store)(nil)
	_ statebackend.SegmentStore = (*Scope)(nil)
)

// Open opens the cache directory, removes what an interrupted download left there, and indexes the rest without reading it.
func Open(cfg Config) (*Store, error) {
	if cfg.OpenBucket == nil {
		cfg.OpenBucket = blob.OpenURL
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("segment cache %s: %w", cfg.Dir, err)
	}
	cfg.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the segment cache: %w", err)
	}
	if cfg.Downloads <= 0 {
		cfg.Downloads = defaultDownloads
	}
	s := &Store{
		cfg: cfg, boot: bootID(), buckets: map[string]blob.Bucket{},
		downloads: make(chan struct{}, cfg.Downloads), uploads: make(chan struct{}, maxUploads), downloadPace: pace{rate: cfg.DownloadRate}, verifyPace: pace{rate: cfg.VerifyRate},
	}
	s.cache, err = scan(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the segment cache: %w", err)
	}
	s.life, s.end = context.WithCancel(context.Background())
	s.whole = s.Scope()
	if cfg.VerifyRate > 0 {
		s.running.Go(func() { s.reverify(s.life) })
	}
	return s, nil
}

// Upload implements [statebackend.SegmentStore]. The file is held in the cache until Close.
func (s *Store) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	return s.whole.Upload(ctx, localPath, name, size, crc32c)
}

// Fetch implements [statebackend.SegmentStore]. The file is held in the cache until Close.
func (s *Store) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	return s.whole.Fetch(ctx, segment)
}

// Close gives up what is under way, waits for it, and closes the buckets that the store itself opened.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for url, b := range s.buckets {
		errs = append(errs, b.Close())
		delete(s.buckets, url)
	}
	return errors.Join(errs...)
}

// Bytes returns the size in bytes of the cache.
func (s *Store) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cache.bytes
}

// Stats are totals since Open.
type Stats struct {
	UploadedBytes, DownloadedBytes uint64
	// Hits counts the fetches that a local copy answered unread.
	Hits uint64
	// VerifiedBytes were read again in the background and are sound; Damaged counts the copies that were not.
	VerifiedBytes, Damaged uint64
}

// Stats returns the store's figures.
func (s *Store) Stats() Stats {
	return Stats{
		UploadedBytes: s.stats.uploaded.Load(), DownloadedBytes: s.stats.downloaded.Load(), Hits: s.stats.hits.Load(),
		VerifiedBytes: s.stats.verified.Load(), Damaged: s.stats.damaged.Load(),
	}
}

// resolve returns the bucket that holds name and the name inside it.
func (s *Store) resolve(ctx context.Context, name string) (blob.Bucket, string, error) {
	if !strings.Contains(name, "://") {
		return s.cfg.Bucket, name, nil
	}
	dir, base := blob.Split(name)
	s.mu.Lock()
	b, ok := s.buckets[dir]
	s.mu.Unlock()
	if ok {
		return b, base, nil
	}
	b, err := s.cfg.OpenBucket(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other, ok := s.buckets[dir]; ok {
		return other, base, b.Close()
	}
	s.buckets[dir] = b
	return b, base, nil
}

// begin counts work under way that Close waits for.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.running.Add(1)
	return nil
}
