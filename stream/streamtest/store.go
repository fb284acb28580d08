package streamtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// files is the checkpoint storage of a job and of what is restored from it. It is used by one job at a time.
type files struct {
	mu      sync.Mutex
	content map[string][]byte
}

// add keeps a file under a name that was never used.
func (f *files) add(name string, data []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.content[name]; ok {
		return fmt.Errorf("file %s is written a second time", name)
	}
	f.content[name] = data
	return nil
}

// store gives one job access to the files; local copies are kept in its scratch directory.
type store struct {
	files *files
	dir   string
	mu    sync.Mutex
	local map[string]string
}

var _ statebackend.SegmentStore = (*store)(nil)

// Upload implements statebackend.SegmentStore.
func (s *store) Upload(_ context.Context, localPath, name string, _ uint64, _ uint32) error {
	data, err := os.ReadFile(localPath)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.files.add(name, data); err != nil {
		return err
	}
	path := s.localPath()
	if err := os.Rename(localPath, path); err != nil {
		return err
	}
	s.local[name] = path
	return nil
}

// Fetch implements statebackend.SegmentStore.
func (s *store) Fetch(_ context.Context, segment *snapshotv1.Segment) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path, ok := s.local[segment.GetName()]; ok {
		return path, nil
	}
	s.files.mu.Lock()
	data, ok := s.files.content[segment.GetName()]
	s.files.mu.Unlock()
	if !ok {
		return "", fmt.Errorf("file %s does not exist", segment.GetName())
	}
	path := s.localPath()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return "", err
	}
	s.local[segment.GetName()] = path
	return path, nil
}

// localPath returns the path of the next local copy; s.mu is held.
func (s *store) localPath() string {
	return filepath.Join(s.dir, "segment-"+strconv.Itoa(len(s.local)))
}
