package segmentstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"
)

// reverifyPause is the time between two rounds in which all local copies are read.
const reverifyPause = 10 * time.Minute

// reverify reads local copies again and again, so that what a disk has silently damaged is found before it is needed.
func (s *Store) reverify(ctx context.Context) {
	for ctx.Err() == nil {
		for _, key := range s.keys() {
			if ctx.Err() == nil {
				s.verifyAgain(ctx, key)
			}
		}
		pause := time.NewTimer(reverifyPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
	}
}

func (s *Store) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.cache.entries {
		keys = append(keys, key)
	}
	return keys
}

// verifyAgain reads one copy whole. A damaged one goes, and comes again from storage if anybody needs it.
func (s *Store) verifyAgain(ctx context.Context, key string) {
	data, ok := s.paths(key)
	c, known := readSidecar(ok)
	if !known {
		return
	}
	want := content{size: c.Size, crc: c.CRC32C, sum: c.SHA256}
	err := verifyFile(data, &want, func(n int) error { return s.verifyPace.wait(ctx, n) })
	if err == nil {
		s.stats.verified.Add(want.size)
		return
	}
	if ctx.Err() != nil || errors.Is(err, fs.ErrNotExist) {
		return
	}
	s.stats.damaged.Add(1)
	s.cfg.Logger.Warn("local copy of a state file is damaged and goes", "name", c.Name, "file", data, "err", err)
	s.mu.Lock()
	s.cache.remove(key)
	needed := s.cache.pins[key] > 0
	s.mu.Unlock()
	// The sidecar goes first: data without one is never trusted.
	if err := errors.Join(removed(os.Remove(ok)), removed(os.Remove(data))); err != nil {
		s.cfg.Logger.Warn("damaged local copy not removed", "file", data, "err", err)
		return
	}
	if !needed {
		return
	}
	if _, err := s.fetchShared(ctx, key, c.Name, want); err != nil {
		s.cfg.Logger.Warn("damaged local copy not replaced", "name", c.Name, "err", err)
	}
}

func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
