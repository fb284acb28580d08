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
	held  map[string]string // cache keys by name; guarded by store.mu
	over  bool
}

// Scope returns a new scope.
func (s *Store) Scope() *Scope { return &Scope{store: s, held: map[string]string{}} }

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
	if err := s.upload(ctx, localPath, name, &want); err != nil {
		return &statebackend.StorageError{Op: "uploading " + name, Err: err}
	}
	s.stats.uploaded.Add(size)
	c.hold(name, content{}) // by name, so that it is found also by a snapshot that does not tell the content's hash
	// The file is durable; without a cached copy a restore downloads it.
	if err := s.adopt(localPath, name, want); err != nil {
		s.cfg.Logger.Warn("uploaded segment not cached", "name", name, "err", err)
	}
	s.evict()
	return nil
}

// Fetch implements [statebackend.SegmentStore].
func (c *Scope) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	name, want := segment.GetName(), contentOf(segment)
	if name == "" {
		return "", &statebackend.StorageError{Op: "fetching a segment", Err: fmt.Errorf("the segment has no name: its content travels inline")}
	}
	s := c.store
	key, fresh := c.hold(name, want) // before the file exists, so that it cannot be evicted in between
	path, err := s.fetchShared(ctx, key, name, want)
	if err != nil {
		if fresh {
			c.drop(name)
		}
		if errors.Is(err, ErrCorrupt) || errors.Is(err, blob.ErrNotExist) {
			return "", &statebackend.LostError{Name: name, Err: err}
		}
		return "", &statebackend.StorageError{Op: "fetching " + name, Err: err}
	}
	s.evict()
	return path, nil
}

// Release implements [statebackend.LocalCopies]: the scope lets go of files. One that it does not hold is none of its business.
func (c *Scope) Release(_ context.Context, names ...string) error {
	for _, name := range names {
		c.drop(name)
	}
	c.store.evict()
	return nil
}

// Distrust implements [statebackend.LocalCopies].
func (c *Scope) Distrust(_ context.Context, names ...string) error {
	s := c.store
	var errs []error
	for _, name := range names {
		s.mu.Lock()
		key, ok := c.held[name]
		s.mu.Unlock()
		if !ok {
			key = keyOf(name)
		}
		_, sidecar := s.paths(key)
		if err := doubt(sidecar); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close lets go of every file. The scope must not be used afterwards.
func (c *Scope) Close() {
	s := c.store
	s.mu.Lock()
	c.over = true
	for _, key := range c.held {
		s.cache.unpin(key)
	}
	clear(c.held)
	s.mu.Unlock()
	s.evict()
}

// hold pins the file with a content and returns its key and whether the scope did not hold the name already.
func (c *Scope) hold(name string, want content) (key string, fresh bool) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	cache := &c.store.cache
	key = cache.keyFor(name, want)
	before, held := c.held[name]
	if c.over || held && before == key {
		return key, false
	}
	if held {
		cache.unpin(before)
	}
	c.held[name] = key
	cache.pins[key]++
	return key, !held
}

func (c *Scope) drop(name string) {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	if key, ok := c.held[name]; ok {
		delete(c.held, name)
		c.store.cache.unpin(key)
	}
}
