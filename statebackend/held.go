package statebackend

import (
	"context"
	"errors"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend/segment"
)

// distrustPatience bounds how long a failing task waits to tell its store that a copy is damaged.
const distrustPatience = 5 * time.Second

// hold notes that the store keeps a local copy of a file.
func (f *files) hold(name string, epoch uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held == nil {
		f.held = map[string]uint64{}
	}
	if _, ok := f.held[name]; !ok {
		f.held[name] = epoch
	}
}

// unneeded returns the held files that no snapshot needs: what was merged away, and what a snapshot wrote that came to nothing. It is
// called on the backend's goroutine.
func (c *core) unneeded() (names []string) {
	needed := map[string]bool{}
	need := func(segments []*snapshotv1.Segment) {
		for _, s := range segments {
			needed[s.GetName()] = true
		}
	}
	need(c.segments)
	writing := map[uint64]bool{}
	for _, f := range c.frozen {
		need(f.before.segments)
		switch f.phase.Load() {
		case phaseIdle, phaseWriting:
			writing[f.epoch] = true
		case phaseWritten:
			need(f.after.segments)
		}
	}
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	for name, epoch := range c.files.held {
		if !needed[name] && !writing[epoch] {
			names = append(names, name)
		}
	}
	return names
}

// distrust has the store look at the local copies of open segments before they are used again, if err tells that one is damaged. It
// returns err.
func (s *sources) distrust(err error) error {
	if !errors.Is(err, segment.ErrCorrupt) {
		return err
	}
	copies, ok := s.files.store.(LocalCopies)
	if !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), distrustPatience)
	defer cancel()
	return errors.Join(err, copies.Distrust(ctx, s.names...))
}

// release tells the store that local copies are not needed any more. Those for which that fails stay held, to be released later.
func (f *files) release(ctx context.Context, names []string) error {
	if err := Release(ctx, f.store, names...); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		delete(f.held, name)
	}
	return nil
}
