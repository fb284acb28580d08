package worker

import (
	"context"
	"sync"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// copies counts which operators need local copies of files: after a rescale several may have been restored from one file, and the
// store is told only when the last of them lets go.
type copies struct {
	store statebackend.SegmentStore

	mu    sync.Mutex
	users map[string]int
}

// share is the store as one operator sees it.
type share struct {
	*copies
	mine map[string]bool // guarded by copies.mu
}

var (
	_ statebackend.SegmentStore = (*share)(nil)
	_ statebackend.LocalCopies  = (*share)(nil)
)

func newCopies(store statebackend.SegmentStore) *copies {
	return &copies{store: store, users: make(map[string]int)}
}

func (c *copies) share() *share { return &share{copies: c, mine: make(map[string]bool)} }

// Upload implements statebackend.SegmentStore.
func (s *share) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	s.use(name)
	return s.store.Upload(ctx, localPath, name, size, crc32c)
}

// Fetch implements statebackend.SegmentStore.
func (s *share) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	s.use(segment.GetName())
	return s.store.Fetch(ctx, segment)
}

func (s *share) use(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mine[name] {
		s.mine[name] = true
		s.users[name]++
	}
}

// Distrust implements statebackend.LocalCopies.
func (s *share) Distrust(ctx context.Context, names ...string) error {
	if c, ok := s.store.(statebackend.LocalCopies); ok {
		return c.Distrust(ctx, names...)
	}
	return nil
}

// Release implements statebackend.LocalCopies. A file that another operator fetches meanwhile may lose its copy, which is fetched again
// when it is needed.
func (s *share) Release(ctx context.Context, names ...string) error {
	var last []string
	s.mu.Lock()
	for _, name := range names {
		if !s.mine[name] {
			continue
		}
		delete(s.mine, name)
		if s.users[name]--; s.users[name] == 0 {
			delete(s.users, name)
			last = append(last, name)
		}
	}
	s.mu.Unlock()
	return statebackend.Release(ctx, s.store, last...)
}
