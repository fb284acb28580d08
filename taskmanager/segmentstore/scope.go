package segmentstore

import (
	"context"
	"errors"
	"fmt"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/blob"
)

// Scope is a store as one user of it, such as a worker process, sees it: files that it uploaded or fetched stay in the cache until it
// lets go of them by Release or Close.
type Scope struct {
	store *Store
	held  map[string]struct{} // cache keys; guarded by store.mu
	over  bool
}

// Scope returns a new scope.
func (s *Store) Scope() *Scope { return &Scope{store: s, held: map[string]struct{}{}} }

// Upload implements [statebackend.SegmentStore]. A file that storage has already, byte for byte, is a success, so that a repeated
// call is harmless.
func (c *Scope) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	s := c.store
	if err := s.begin(); err != nil {
		return err
	}
	defer s.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	want := content{size: size, crc: crc32c}
	if err := s.upload(ctx, localPath, name, want); err != nil {
		return &statebackend.StorageError{Op: "uploading " + name, Err: err}
	}
	s.stats.uploaded.Add(size)
	c.hold(keyOf(name))
	// The file is durable; without a cached copy a restore downloads it.
	if err := s.adopt(localPath, name, want); err != nil {
		s.cfg.Logger.Warn("uploaded segment not cached", "name", name, "err", err)
	}
	s.evict()
	return nil
}

// Fetch implements [statebackend.SegmentStore].
func (c *Scope) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	name, want := segment.GetName(), content{size: segment.GetSize(), crc: segment.GetCrc32C()}
	if name == "" {
		return "", &statebackend.StorageError{Op: "fetching a segment", Err: fmt.Errorf("the segment has no name: its content travels inline")}
	}
	s, key := c.store, keyOf(name)
	fresh := c.hold(key) // before the file exists, so that it cannot be evicted in between
	path, err := s.fetchShared(ctx, key, name, want)
	if err != nil {
		if fresh {
			c.drop(key)
		}
		if errors.Is(err, ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
			return "", &statebackend.LostError{Name: name, Err: err}
		}
		return "", &statebackend.StorageError{Op: "fetching " + name, Err: err}
	}
	s.evict()
	return path, nil
}

// Release implements [statebackend.Releaser]: the scope lets go of files. One that it does not hold is none of its business.
func (c *Scope) Release(_ context.Context, names ...string) error {
	for _, name := range names {
		c.drop(keyOf(name))
	}
	c.store.evict()
	return nil
}

// Close lets go of every file. The scope must not be used afterwards.
func (c *Scope) Close() {
	s := c.store
	s.mu.Lock()
	c.over = true
	for key := range c.held {
		s.cache.unpin(key)
	}
	clear(c.held)
	s.mu.Unlock()
	s.evict()
}

// hold pins key and reports whether the scope did not hold it already.
func (c *Scope) hold(key string) bool {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if _, ok := c.held[key]; ok || c.over {
		return false
	}
	c.held[key] = struct{}{}
	c.store.cache.pins[key]++
	return true
}

func (c *Scope) drop(key string) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if _, ok := c.held[key]; ok {
		delete(c.held, key)
		c.store.cache.unpin(key)
	}
}
