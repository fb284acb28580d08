package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-stream/weir/internal/atomicfile"
	"github.com/weir-stream/weir/internal/faultpoint"
)

// tempPrefix begins the names of unfinished objects, which List leaves out. Those that a crash left behind are removed when a bucket is
// opened after staleAge.
const (
	tempPrefix = ".weir-tmp-"
	staleAge   = 24 * time.Hour
)

const opPut = "put"

// fileBucket keeps objects as files below a directory. It syncs file and directories before Put returns.
type fileBucket struct {
	root string
}

var _ Bucket = (*fileBucket)(nil)

func openFile(u *url.URL) (*fileBucket, error) {
	if u.Host != "" && u.Host != "localhost" {
		return nil, fmt.Errorf("checkpoint storage %q: a file URL has three slashes: file:///absolute/path", u)
	}
	if !filepath.IsAbs(u.Path) {
		return nil, fmt.Errorf("checkpoint storage %q: the path must be absolute: file:///absolute/path", u)
	}
	root := filepath.Clean(u.Path)
	if err := atomicfile.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", u, err)
	}
	if err := removeStale(root); err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", u, err)
	}
	return &fileBucket{root: root}, nil
}

func removeStale(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	var now time.Time
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue
		}
		if now.IsZero() {
			if now, err = clockOf(root); err != nil {
				return err
			}
		}
		if now.Sub(info.ModTime()) < staleAge {
			continue
		}
		if err := os.Remove(filepath.Join(root, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// clockOf returns the time that the storage's own clock gives to a file made now. Ours is another machine's where the directory is shared.
func clockOf(root string) (time.Time, error) {
	f, err := os.CreateTemp(root, tempPrefix)
	if err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (b *fileBucket) URL() string  { return (&url.URL{Scheme: "file", Path: b.root}).String() }
func (b *fileBucket) Close() error { return nil }

func (b *fileBucket) path(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(b.root, filepath.FromSlash(name)), nil
}

// wrap names the operation and maps the system's errors to the package's.
func (b *fileBucket) wrap(op, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case op != opPut && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)):
		// For a Put the same errors tell of the directories above, and their text is what helps.
		return fmt.Errorf("%s %s: %w", op, name, ErrNotExist)
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s %s: %w", op, name, ErrExists)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%s %s: %w (%s): %w", op, name, ErrNoSpace, b.root, err)
	default:
		return fmt.Errorf("%s %s: %w", op, name, err)
	}
}

func (b *fileBucket) Put(ctx context.Context, name string, r io.Reader) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := faultpoint.Err(faultpoint.PutDue); err != nil {
		return b.wrap(opPut, name, err)
	}
	if _, err = os.Lstat(path); err == nil {
		err = fs.ErrExist
	} else {
		err = b.put(ctx, path, r)
	}
	if errors.Is(err, fs.ErrExist) {
		// Callers take an object with their content for their own, of which the sync of a directory may have failed.
		if serr := b.syncUp(filepath.Dir(path)); serr != nil && !errors.Is(serr, fs.ErrNotExist) {
			err = serr
		}
	}
	return b.wrap(opPut, name, err)
}

func (b *fileBucket) put(ctx context.Context, path string, r io.Reader) (err error) {
	tmp, err := os.CreateTemp(b.root, tempPrefix+"*")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := os.Remove(tmp.Name()); err == nil && rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = rerr
		}
	}()
	_, err = io.Copy(tmp, contextReader{ctx, r})
	if err == nil {
		err = tmp.Chmod(0o644)
	}
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	faultpoint.Hit(faultpoint.PutSynced)
	return b.publish(tmp.Name(), path)
}

// publish gives a finished file its name. Deleting the last object of a directory removes the directory, so it may vanish between its
// creation and the link; a few attempts are enough.
func (b *fileBucket) publish(tmp, path string) error {
	dir := filepath.Dir(path)
	var err error
	for range 10 {
		if err = os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err = linkExclusive(tmp, path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	faultpoint.Hit(faultpoint.PutNamed)
	return b.syncUp(dir)
}

// syncUp syncs every directory up to the root, since one that was there already may have been made by another Put that has not come so
// far.
func (b *fileBucket) syncUp(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		if err := atomicfile.SyncDir(dir); err != nil || dir == b.root {
			return err
		}
	}
}

func (b *fileBucket) Open(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := b.path(name)
	if err != nil {
		return nil, err
	}
	if err := faultpoint.Err(faultpoint.OpenDue); err != nil {
		return nil, b.wrap("open", name, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, b.wrap("open", name, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, errors.Join(b.wrap("open", name, err), f.Close())
	}
	return f, nil
}

func (b *fileBucket) Stat(_ context.Context, name string) (Attributes, error) {
	path, err := b.path(name)
	if err != nil {
		return Attributes{}, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Attributes{}, b.wrap("stat", name, err)
	}
	return Attributes{Name: name, Size: info.Size(), ModTime: info.ModTime()}, nil
}

func (b *fileBucket) List(ctx context.Context, prefix string) iter.Seq2[Attributes, error] {
	return func(yield func(Attributes, error) bool) {
		if _, err := b.walk(ctx, "", prefix, yield); err != nil {
			yield(Attributes{}, b.wrap("list", prefix, err))
		}
	}
}

// walk yields the objects below dir, a name that is empty or ends with a slash, and reports whether to go on.
func (b *fileBucket) walk(ctx context.Context, dir, prefix string, yield func(Attributes, error) bool) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	entries, err := os.ReadDir(filepath.Join(b.root, filepath.FromSlash(dir)))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // removed meanwhile
	}
	if err != nil {
		return false, err
	}
	sortAsNames(entries)
	for _, e := range entries {
		name := dir + e.Name()
		if strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if e.IsDir() {
			name += "/"
			if !strings.HasPrefix(name, prefix) && !strings.HasPrefix(prefix, name) {
				continue
			}
			if more, err := b.walk(ctx, name, prefix, yield); !more || err != nil {
				return false, err
			}
			continue
		}
		if !strings.HasPrefix(name, prefix) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		if !yield(Attributes{Name: name, Size: info.Size(), ModTime: info.ModTime()}, nil) {
			return false, nil
		}
	}
	return true, nil
}

func (b *fileBucket) Delete(_ context.Context, name string) error {
	path, err := b.path(name)
	if err != nil {
		return err
	}
	if err := faultpoint.Err(faultpoint.DeleteDue); err != nil {
		return b.wrap("delete", name, err)
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return b.wrap("delete", name, err)
	}
	b.prune(filepath.Dir(path))
	return nil
}

// prune removes a directory and those above it as far as they are empty: Remove refuses one that is in use.
func (b *fileBucket) prune(dir string) {
	for dir != b.root && os.Remove(dir) == nil {
		dir = filepath.Dir(dir)
	}
}
