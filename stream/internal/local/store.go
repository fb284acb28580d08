package local

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/atomicfile"
	"github.com/weir-stream/weir/statebackend"
)

// store keeps state files below a directory on this machine. A file is moved into place, never copied, and read where it lies, so
// that state is on the disk once.
type store struct {
	root string

	mu sync.Mutex
	// verified holds the names whose content was checked by this process.
	verified map[string]bool
}

var _ statebackend.SegmentStore = (*store)(nil)

var (
	errExists   = errors.New("the file exists already")
	errSize     = errors.New("size differs from the recorded one")
	errChecksum = errors.New("checksum differs from the recorded one")
)

func newStore(root string) *store { return &store{root: root, verified: make(map[string]bool)} }

func (s *store) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

// Upload implements statebackend.SegmentStore.
func (s *store) Upload(_ context.Context, localPath, name string, size uint64, crc32c uint32) error {
	if err := s.upload(localPath, name, size, crc32c); err != nil {
		return &statebackend.StorageError{Op: "store " + name, Err: err}
	}
	return nil
}

func (s *store) upload(localPath, name string, size uint64, crc32c uint32) error {
	to := s.path(name)
	if _, err := os.Stat(to); err == nil {
		return errExists
	}
	f, err := os.Open(localPath)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := verify(f, size, crc32c); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := atomicfile.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := os.Rename(localPath, to); err != nil {
		return err
	}
	if err := atomicfile.SyncDir(filepath.Dir(to)); err != nil {
		return err
	}
	s.mu.Lock()
	s.verified[name] = true
	s.mu.Unlock()
	return nil
}

// put makes data durable under a name that was never used.
func (s *store) put(name string, data []byte) error {
	to := s.path(name)
	if err := atomicfile.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(to, data, 0o600)
}

// Fetch implements statebackend.SegmentStore.
func (s *store) Fetch(_ context.Context, segment *snapshotv1.Segment) (string, error) {
	path := s.path(segment.GetName())
	err := s.check(path, segment)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, fs.ErrNotExist):
		return "", &statebackend.LostError{Name: segment.GetName(), Err: fs.ErrNotExist}
	case errors.Is(err, errSize), errors.Is(err, errChecksum):
		return "", &statebackend.LostError{Name: segment.GetName(), Err: err}
	}
	return "", &statebackend.StorageError{Op: "read " + segment.GetName(), Err: err}
}

func (s *store) check(path string, segment *snapshotv1.Segment) error {
	s.mu.Lock()
	known := s.verified[segment.GetName()]
	s.mu.Unlock()
	if known {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := verify(f, segment.GetSize(), segment.GetCrc32C()); err != nil {
		return err
	}
	s.mu.Lock()
	s.verified[segment.GetName()] = true
	s.mu.Unlock()
	return nil
}

func verify(f *os.File, size uint64, want uint32) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if uint64(info.Size()) != size {
		return fmt.Errorf("%w: %d bytes instead of %d", errSize, info.Size(), size)
	}
	h := crc32.New(castagnoli())
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if h.Sum32() != want {
		return errChecksum
	}
	return nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// remove deletes files; one that is gone already is no error, and one that cannot be deleted does not keep the others.
func (s *store) remove(names []string) error {
	var errs []error
	for _, name := range names {
		s.mu.Lock()
		delete(s.verified, name)
		s.mu.Unlock()
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// used reports whether there is any file.
func (s *store) used() (bool, error) {
	used := false
	err := filepath.WalkDir(s.root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		used = true
		return fs.SkipAll
	})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return used, err
}

// sweep deletes every file that keep does not name, with the directories that become empty.
func (s *store) sweep(keep map[string]bool) error {
	var errs []error
	var dirs []string
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		if d.IsDir() {
			dirs = append(dirs, path)
			return nil
		}
		name := filepath.ToSlash(strings.TrimPrefix(path, s.root+string(filepath.Separator)))
		if !keep[name] {
			errs = append(errs, os.Remove(path))
		}
		return nil
	})
	// Innermost first; those with files refuse.
	for i := len(dirs) - 1; i > 0; i-- {
		_ = os.Remove(dirs[i])
	}
	return errors.Join(append(errs, err)...)
}
