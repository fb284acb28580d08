package segmentstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-stream/weir/statebackend/blob"
)

// upload makes the local file durable under name, when it is its turn, and completes want with what it has read.
func (s *Store) upload(ctx context.Context, localPath, name string, want *content) error {
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	bucket, object, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	f, err := os.Open(localPath)
	if err != nil {
		return err
	}
	defer f.Close()
	// A mismatch surfaces before the end of the file, so that nothing wrong becomes visible on storage.
	r := newCheckedReader(f, *want, nil)
	err = bucket.Put(ctx, object, r)
	if errors.Is(err, blob.ErrExists) {
		return s.same(ctx, bucket, object, *want)
	}
	if err == nil && r.size == want.size {
		want.sum = r.digest()
	}
	return explain(err, bucket.URL())
}

// same checks that storage holds the wanted content under a name that was written before.
func (s *Store) same(ctx context.Context, bucket blob.Bucket, object string, want content) error {
	r, err := bucket.Open(ctx, object)
	if err != nil {
		return explain(err, bucket.URL())
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, newCheckedReader(r, want, nil)); err != nil {
		return fmt.Errorf("%w with other content: %w", blob.ErrExists, err)
	}
	return nil
}

// adopt moves an uploaded file into the cache.
func (s *Store) adopt(localPath, name string, want content) error {
	key := keyOf(name)
	data, ok := s.paths(key)
	if err := os.Rename(localPath, data); err != nil {
		if !errors.Is(err, syscall.EXDEV) {
			return err
		}
		if err := s.copyIn(localPath, data, want); err != nil {
			return explain(err, s.cfg.Dir)
		}
		if err := os.Remove(localPath); err != nil {
			return err
		}
	}
	if err := s.vouch(data, ok, name, want); err != nil {
		return explain(err, s.cfg.Dir)
	}
	s.record(key, want)
	return nil
}

func (s *Store) copyIn(from, to string, want content) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.writeTemp(f, to, &want, nil)
}

// fetchShared fetches name once for all concurrent callers. A caller that gives up does not disturb the others.
func (s *Store) fetchShared(ctx context.Context, key, name string, want content) (string, error) {
	if err := s.begin(); err != nil {
		return "", err
	}
	defer s.running.Done()
	flight := fmt.Sprintf("%s/%d/%08x/%s", key, want.size, want.crc, want.sum)
	done := s.flights.DoChan(flight, func() (any, error) {
		// A count of its own: every caller may be gone before this runs, and Close with them.
		if err := s.begin(); err != nil {
			return nil, err
		}
		defer s.running.Done()
		return s.fetch(s.life, key, name, want)
	})
	select {
	case r := <-done:
		if r.Err != nil {
			return "", r.Err
		}
		return r.Val.(string), nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (s *Store) fetch(ctx context.Context, key, name string, want content) (string, error) {
	data, ok := s.paths(key)
	if s.vouched(data, ok, want) {
		s.stats.hits.Add(1)
		s.record(key, want)
		return data, nil
	}
	if err := verifyFile(data, &want, nil); err == nil {
		// Not read since boot, or its sidecar does not fit: it has been read now.
		if err := s.vouch(data, ok, name, want); err != nil {
			return "", explain(err, s.cfg.Dir)
		}
		s.record(key, want)
		return data, nil
	} else if errors.Is(err, ErrCorrupt) {
		s.cfg.Logger.Warn("cached segment is corrupt and is fetched again", "name", name, "err", err)
	}
	if err := s.download(ctx, data, name, &want); err != nil {
		return "", err
	}
	if err := s.vouch(data, ok, name, want); err != nil {
		return "", explain(err, s.cfg.Dir)
	}
	s.record(key, want)
	return data, nil
}

// download brings a file from storage to the path to, when it is its turn, and completes want with what it has read.
func (s *Store) download(ctx context.Context, to, name string, want *content) error {
	select {
	case s.downloads <- struct{}{}:
		defer func() { <-s.downloads }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	bucket, object, err := s.resolve(ctx, name)
	if err != nil {
		return err
	}
	r, err := bucket.Open(ctx, object)
	if errors.Is(err, blob.ErrNotExist) {
		return s.absent(ctx, name)
	}
	if err != nil {
		return explain(err, bucket.URL())
	}
	defer r.Close()
	err = s.writeTemp(r, to, want, func(n int) error { return s.downloadPace.wait(ctx, n) })
	switch {
	case errors.Is(err, ErrCorrupt):
		return err
	case err != nil:
		return explain(err, s.cfg.Dir)
	}
	s.stats.downloaded.Add(want.size)
	return nil
}

// absent returns the error about a file that is not there. Where nothing of the cluster is there, such as in a directory whose file
// system is not mounted, that proves nothing about the file.
func (s *Store) absent(ctx context.Context, name string) error {
	if strings.Contains(name, "://") {
		return blob.ErrNotExist
	}
	cluster, _, _ := strings.Cut(name, "/")
	if _, err := s.cfg.Bucket.Stat(ctx, cluster+"/probe"); err != nil {
		return fmt.Errorf("checkpoint storage %s does not hold the files of cluster %s: is it mounted? (%s)", s.cfg.Bucket.URL(), cluster, err.Error()) // not %w: the file may exist
	}
	return fmt.Errorf("%w on %s", blob.ErrNotExist, s.cfg.Bucket.URL())
}

// writeTemp writes r to a temporary file, verifies it and gives it its name. It completes want with what it has read.
func (s *Store) writeTemp(r io.Reader, to string, want *content, pace func(int) error) error {
	temp := filepath.Join(s.cfg.Dir, rand.Text()+tempSuffix)
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	checked := newCheckedReader(r, *want, pace)
	_, err = io.Copy(f, checked)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, to)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	want.sum = checked.digest()
	return nil
}

func (s *Store) paths(key string) (data, sidecar string) {
	return filepath.Join(s.cfg.Dir, key+dataSuffix), filepath.Join(s.cfg.Dir, key+sidecarSuffix)
}

// record indexes a file just used.
func (s *Store) record(key string, want content) {
	now := time.Now()
	_, ok := s.paths(key)
	if err := touch(ok, now); err != nil {
		s.cfg.Logger.Warn("use of cached segment not recorded", "file", ok, "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache.set(key, want, now)
}

// explain names the place in an error about a full disk, which the system's own text leaves out or buries.
func explain(err error, place string) error {
	if errors.Is(err, blob.ErrNoSpace) {
		return fmt.Errorf("%s: %w", place, err)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("no space left on %s: %w", place, err)
	}
	return err
}
