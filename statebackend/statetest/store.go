// Package statetest helps to test what uses state: a SegmentStore in memory.
package statetest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// Store is a SegmentStore that keeps everything in memory. Like the real one it writes no name twice, takes over uploaded files and
// checks sizes and checksums. It may be used from any goroutine.
type Store struct {
	dir string

	mu      sync.Mutex
	objects map[string][]byte
	err     error
	fetches int
}

var _ statebackend.SegmentStore = (*Store)(nil)

// NewStore returns an empty store that keeps fetched files below dir.
func NewStore(dir string) *Store { return &Store{dir: dir, objects: map[string][]byte{}} }

// Fail makes every later upload return err, until it is nil again.
func (s *Store) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// Names returns the names of all objects in order.
func (s *Store) Names() (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Delete removes an object.
func (s *Store) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
}

// Fetches returns the number of calls of Fetch.
func (s *Store) Fetches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

// Upload implements statebackend.SegmentStore.
func (s *Store) Upload(_ context.Context, localPath, name string, size uint64, crc32c uint32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if _, ok := s.objects[name]; ok {
		return fmt.Errorf("upload %s: the object exists already", name)
	}
	content, err := os.ReadFile(localPath)
	if err != nil {
		return err
	}
	if err := check(name, content, size, crc32c); err != nil {
		return err
	}
	s.objects[name] = content
	return os.Remove(localPath)
}

// Fetch implements statebackend.SegmentStore.
func (s *Store) Fetch(_ context.Context, segment *snapshotv1.Segment) (localPath string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetches++
	content, ok := s.objects[segment.GetName()]
	if !ok {
		return "", fmt.Errorf("fetch %s: no such object", segment.GetName())
	}
	path := filepath.Join(s.dir, strings.ReplaceAll(segment.GetName(), "/", "%2F"))
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err // verified when it was written
	}
	if err := check(segment.GetName(), content, segment.GetSize(), segment.GetCrc32C()); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, content, 0o444)
}

func check(name string, content []byte, size uint64, crc32c uint32) error {
	sum := crc32.Checksum(content, crc32.MakeTable(crc32.Castagnoli))
	if uint64(len(content)) != size || sum != crc32c {
		return fmt.Errorf("object %s has %d bytes with checksum %08x, not %d with %08x", name, len(content), sum, size, crc32c)
	}
	return nil
}
