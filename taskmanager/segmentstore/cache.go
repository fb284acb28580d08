package segmentstore

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// File name endings in the cache directory: the data, what vouches for it, and what is being written.
const (
	dataSuffix    = ".seg"
	sidecarSuffix = ".ok"
	tempSuffix    = ".tmp"
)

// cache is the index of the cache directory. The store's mutex guards it.
type cache struct {
	bytes   int64
	entries map[string]*entry
	bySum   map[string]string // keys by SHA-256
	pins    map[string]int    // by key, also for files not there yet
}

type entry struct {
	size int64
	used time.Time
	sum  string // empty when it is not known
}

// keyOf returns the cache's name for a remote name, which is written once and so stands for its content.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:20])
}

// keyFor returns the cache's name of the file with a content, or the one under which it is to be kept: the content tells it, where it
// is known, since one content may have several names.
func (c *cache) keyFor(name string, want content) string {
	if want.sum == "" {
		return keyOf(name)
	}
	if key, ok := c.bySum[want.sum]; ok {
		return key
	}
	return want.sum[:40]
}

// scan indexes dir and removes the leftovers of a crash: temporary files, and data or sidecars without the other.
func scan(dir string) (cache, error) {
	c := cache{entries: map[string]*entry{}, bySum: map[string]string{}, pins: map[string]int{}}
	files, err := os.ReadDir(dir)
	if err != nil {
		return c, err
	}
	sidecars := map[string]time.Time{}
	for _, f := range files {
		info, err := f.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return c, err
		}
		name := f.Name()
		switch {
		case strings.HasSuffix(name, tempSuffix):
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return c, err
			}
		case strings.HasSuffix(name, sidecarSuffix):
			sidecars[strings.TrimSuffix(name, sidecarSuffix)] = info.ModTime()
		case strings.HasSuffix(name, dataSuffix):
			c.set(strings.TrimSuffix(name, dataSuffix), content{size: uint64(info.Size())}, info.ModTime())
		}
	}
	for key := range c.entries {
		used, ok := sidecars[key]
		if !ok {
			c.remove(key)
			if err := os.Remove(filepath.Join(dir, key+dataSuffix)); err != nil {
				return c, err
			}
			continue
		}
		if s, ok := readSidecar(filepath.Join(dir, key+sidecarSuffix)); ok {
			c.set(key, content{size: s.Size, sum: s.SHA256}, used)
		} else {
			c.entries[key].used = used
		}
		delete(sidecars, key)
	}
	for key := range sidecars {
		if err := os.Remove(filepath.Join(dir, key+sidecarSuffix)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// set indexes a file. Who does not know the hash of its content does not make others forget it.
func (c *cache) set(key string, what content, used time.Time) {
	if e, ok := c.entries[key]; ok && what.sum == "" {
		what.sum = e.sum
	}
	c.remove(key)
	c.entries[key] = &entry{size: int64(what.size), used: used, sum: what.sum}
	c.bytes += int64(what.size)
	if what.sum != "" {
		c.bySum[what.sum] = key
	}
}

func (c *cache) remove(key string) {
	if e, ok := c.entries[key]; ok {
		c.bytes -= e.size
		delete(c.entries, key)
		if c.bySum[e.sum] == key {
			delete(c.bySum, e.sum)
		}
	}
}

func (c *cache) unpin(key string) {
	if c.pins[key]--; c.pins[key] <= 0 {
		delete(c.pins, key)
	}
}

// oldest returns the least recently used entry that nobody holds.
func (c *cache) oldest() (key string, ok bool) {
	for k, e := range c.entries {
		if c.pins[k] == 0 && (!ok || e.used.Before(c.entries[key].used)) {
			key, ok = k, true
		}
	}
	return key, ok
}

// evict unlinks files until the cache is within its bound or all that is left is held.
func (s *Store) evict() {
	if s.cfg.MaxBytes <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.cache.bytes > s.cfg.MaxBytes {
		key, ok := s.cache.oldest()
		if !ok {
			return
		}
		s.cache.remove(key)
		// The sidecar goes first: data without one is never trusted.
		for _, suffix := range []string{sidecarSuffix, dataSuffix} {
			if err := os.Remove(filepath.Join(s.cfg.Dir, key+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.cfg.Logger.Warn("cached segment not removed", "file", key+suffix, "err", err)
			}
		}
	}
}
