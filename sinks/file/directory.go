package filesink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/weir-stream/weir/internal/atomicfile"
	"github.com/weir-stream/weir/operator"
)

// Directory is a directory that all TaskManagers share. The path is absolute.
func Directory(path string) Place { return directory(path) }

type directory string

func (d directory) String() string { return "directory " + string(d) }

func (d directory) Validate() error {
	if !filepath.IsAbs(string(d)) {
		return fmt.Errorf("directory %q: give an absolute path; it is the same on every machine that may run a task", string(d))
	}
	return nil
}

func (d directory) Open(context.Context) (Store, error) {
	root := filepath.Clean(string(d))
	if err := atomicfile.MkdirAll(filepath.Join(root, hidden), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the file sink: %w", outside(err))
	}
	probe, err := os.CreateTemp(filepath.Join(root, hidden), "probe-")
	if err != nil {
		return nil, fmt.Errorf("directory of the file sink: %w", outside(err))
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("directory of the file sink: %w", outside(err))
	}
	return &dirStore{root}, nil
}

// dirStore keeps files below a directory. Files and directories are synced before a method returns.
type dirStore struct{ root string }

// outside marks trouble of the file system that is none of the job's and may pass: it is full, read-only or out of order.
func outside(err error) error {
	for _, passing := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EIO, syscall.ESTALE, syscall.ENOTCONN, syscall.EHOSTDOWN, syscall.ETIMEDOUT} {
		if errors.Is(err, passing) {
			return operator.Unavailable(err)
		}
	}
	return err
}

const (
	pendingSuffix  = ".pending"
	progressSuffix = ".inprogress"
)

func (s *dirStore) path(name string) string { return filepath.Join(s.root, filepath.FromSlash(name)) }

func (s *dirStore) Create(ctx context.Context, name string) (_ File, err error) {
	defer func() { err = outside(err) }()
	path := s.path(name)
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(strings.TrimSuffix(path, pendingSuffix)+progressSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err == nil {
			return &dirFile{f, path}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil {
			return nil, err
		}
		// A commit has taken the directory away with its last file.
		if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
	}
}

type dirFile struct {
	*os.File
	path string
}

func (f *dirFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	return n, outside(err)
}

func (f *dirFile) Seal(context.Context) (err error) {
	defer func() { err = outside(err) }()
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	return atomicfile.SyncDir(filepath.Dir(f.path))
}

func (f *dirFile) Discard() (err error) {
	defer func() { err = outside(err) }()
	_ = f.Close()
	return removed(os.Remove(f.Name()))
}

func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *dirStore) Publish(_ context.Context, from, to string) (err error) {
	defer func() { err = outside(err) }()
	if err := atomicfile.MkdirAll(filepath.Dir(s.path(to)), 0o755); err != nil {
		return err
	}
	if err := os.Rename(s.path(from), s.path(to)); err != nil {
		return err
	}
	// The new name first: a crash in between then leaves both or the new one, never none.
	err = atomicfile.SyncDir(filepath.Dir(s.path(to)))
	if serr := atomicfile.SyncDir(filepath.Dir(s.path(from))); err == nil {
		err = removed(serr) // another try has taken it away
	}
	if err == nil {
		_ = os.Remove(filepath.Dir(s.path(from))) // with its last file: fails while it holds anything
	}
	return err
}

func (s *dirStore) Exists(_ context.Context, name string) (_ bool, err error) {
	defer func() { err = outside(err) }()
	_, err = os.Stat(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		// One that was renamed a moment before a crash of its process may not be synced yet.
		err = atomicfile.SyncDir(filepath.Dir(s.path(name)))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil // taken away meanwhile, with its directory
		}
	}
	return err == nil, err
}

func (s *dirStore) Read(_ context.Context, name string) ([]byte, error) {
	data, err := os.ReadFile(s.path(name))
	return data, outside(err)
}

func (s *dirStore) Replace(_ context.Context, name string, data []byte) (err error) {
	defer func() { err = outside(err) }()
	path := s.path(name)
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(path, data, 0o644)
}

func (s *dirStore) List(_ context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := filepath.WalkDir(s.path(prefix), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return removed(err)
			}
			rel, err := filepath.Rel(s.root, path)
			if err != nil {
				return err
			}
			if !yield(filepath.ToSlash(rel), nil) {
				return fs.SkipAll
			}
			return nil
		})
		if err != nil {
			yield("", outside(err))
		}
	}
}

// Remove takes the directory with its last file, unless it is the place itself.
func (s *dirStore) Remove(_ context.Context, name string) (err error) {
	defer func() { err = outside(err) }()
	path := s.path(name)
	if err := removed(os.Remove(path)); err != nil {
		return err
	}
	if dir := filepath.Dir(path); dir != s.root {
		_ = os.Remove(dir) // fails while it holds anything
	}
	return nil
}

func (s *dirStore) Close() error { return nil }
