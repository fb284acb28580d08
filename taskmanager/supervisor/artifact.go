package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-stream/weir/statebackend/blob"
)

// artifacts is the bounded cache of job binaries. A binary is read whole before its first use in this process.
type artifacts struct {
	dir    string
	limit  int64
	logger *slog.Logger

	mu    sync.Mutex
	files map[string]*artifact // by hex SHA-256
}

type artifact struct {
	size    int64
	used    time.Time
	users   int
	present bool          // verified by this process
	busy    chan struct{} // closed when the one who verifies or downloads is done; nil when nobody does
}

// openArtifacts indexes the cache and removes what an interrupted download left.
func openArtifacts(dir string, limit int64, logger *slog.Logger) (*artifacts, error) {
	c := &artifacts{dir: dir, limit: limit, logger: logger, files: map[string]*artifact{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if !validHash(e.Name()) {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return nil, err
			}
			continue
		}
		c.files[e.Name()] = &artifact{size: info.Size(), used: info.ModTime()}
	}
	return c, nil
}

// acquire returns an executable copy of the binary with the hash, which stays until release. Concurrent callers download it once.
func (c *artifacts) acquire(ctx context.Context, bucket blob.Bucket, cluster, hash string) (path string, release func(), err error) {
	if !validHash(hash) {
		return "", nil, fatal(fmt.Errorf("%q is not the SHA-256 of a job binary", hash))
	}
	path, err = filepath.Abs(filepath.Join(c.dir, hash))
	if err != nil {
		return "", nil, err
	}
	c.mu.Lock()
	a := c.files[hash]
	if a == nil {
		a = &artifact{}
		c.files[hash] = a
	}
	a.users++
	for a.busy != nil {
		busy := a.busy
		c.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			c.release(hash, a)
			return "", nil, context.Cause(ctx)
		}
		c.mu.Lock()
	}
	if a.present {
		c.mu.Unlock()
		return path, func() { c.release(hash, a) }, nil
	}
	a.busy = make(chan struct{})
	c.mu.Unlock()

	size, err := c.provide(ctx, bucket, cluster, hash, path)
	c.mu.Lock()
	close(a.busy)
	a.busy = nil
	if err == nil {
		a.size, a.present = size, true
	}
	c.mu.Unlock()
	if err != nil {
		c.release(hash, a)
		return "", nil, err
	}
	return path, func() { c.release(hash, a) }, nil
}

func (c *artifacts) release(hash string, a *artifact) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a.users--
	a.used = time.Now()
	if a.users == 0 && !a.present {
		delete(c.files, hash) // the next one looks at the disk and at storage again
	}
	c.evict()
}

// evict removes the least recently used binaries beyond the bound, except those in use.
func (c *artifacts) evict() {
	var total int64
	for _, a := range c.files {
		total += a.size
	}
	for total > c.limit {
		oldest := ""
		for h, a := range c.files {
			if a.users == 0 && (oldest == "" || a.used.Before(c.files[oldest].used)) {
				oldest = h
			}
		}
		if oldest == "" {
			return
		}
		if err := os.Remove(filepath.Join(c.dir, oldest)); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.logger.Warn("cached job binary not removed", "sha256", oldest, "err", err)
		}
		total -= c.files[oldest].size
		delete(c.files, oldest)
	}
}

// provide makes path hold the binary: the copy of a former process if it is whole, else a download.
func (c *artifacts) provide(ctx context.Context, bucket blob.Bucket, cluster, hash, path string) (int64, error) {
	if f, err := os.Open(path); err == nil {
		size, err := checkHash(f, io.Discard, hash)
		_ = f.Close()
		if err == nil {
			return size, nil
		}
	}
	r, err := bucket.Open(ctx, cluster+"/artifacts/"+hash)
	if errors.Is(err, blob.ErrNotExist) {
		return 0, fatal(fmt.Errorf("job binary %s is not on checkpoint storage %s: submit the job again: %w", hash, bucket.URL(), err))
	}
	if err != nil {
		return 0, storage(fmt.Errorf("fetching job binary %s: %w", hash, err))
	}
	defer r.Close()
	temp := filepath.Join(c.dir, rand.Text()+".tmp")
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o500)
	if err != nil {
		return 0, storage(fmt.Errorf("caching job binary %s: %w", hash, err))
	}
	size, err := checkHash(r, f, hash)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("no space left on %s: %w", c.dir, err)
		}
		return 0, storage(fmt.Errorf("fetching job binary %s: %w", hash, err))
	}
	return size, nil
}

// checkHash copies r to w and compares what it read with the hash.
func checkHash(r io.Reader, w io.Writer, hash string) (int64, error) {
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, h), r)
	if err != nil {
		return n, err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != hash {
		return n, fmt.Errorf("content has SHA-256 %s", got)
	}
	return n, nil
}

func validHash(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 2*sha256.Size && s == strings.ToLower(s)
}

// foreignBinary explains an executable that this machine cannot run.
func foreignBinary(path string) error {
	built := "another platform"
	if f, err := elf.Open(path); err == nil {
		built = "another platform (" + strings.ToLower(strings.TrimPrefix(f.Machine.String(), "EM_")) + ")"
		_ = f.Close()
	}
	return fmt.Errorf("the binary is built for %s or is not an executable; this TaskManager is %s/%s: build it with GOOS=%s GOARCH=%s",
		built, runtime.GOOS, runtime.GOARCH, runtime.GOOS, runtime.GOARCH)
}
