package statebackend

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-stream/weir/statebackend/segment"
)

// loadChunk is how many restored rows are added to the tables at a time, between records.
const loadChunk = 256

// restoredRows are rows of a state that are loaded at a time.
type restoredRows struct {
	batch
	state      *declaration
	rows, size int
}

// startLoader reads all restored rows on a goroutine of its own and adds them to the tables on the backend's.
func (c *core) startLoader() {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.generation++
	generation := c.generation
	opened := c.chain.files.share()
	c.background.Go(func() {
		err := opened.distrust(c.load(ctx, opened.list, generation))
		if err = errors.Join(err, opened.release()); err != nil && ctx.Err() == nil {
			c.cfg.Post(func() error { return fmt.Errorf("restore operator %s: %w", c.cfg.Operator, err) })
		}
	})
}

func (c *core) load(ctx context.Context, sources []segment.Source, generation int) (err error) {
	m, err := segment.NewMerge(sources, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	batches := map[uint16]*restoredRows{}
	rows := 0
	for m.Seek(segment.AppendPrefix(nil, c.cfg.KeyGroups.First, 0)); m.Valid(); m.Next() {
		id := segment.State(m.Key())
		d := c.byID[id]
		if d == nil {
			continue // dropped
		}
		if batches[id] == nil {
			batches[id] = &restoredRows{batch: d.state.newBatch(), state: d}
		}
		b := batches[id]
		if err := b.decode(m.Key(), m.Value(), stamp(m.Stamp())); err != nil {
			return c.decodeError(m.Key(), err)
		}
		b.rows++
		b.size += len(m.Key()) + len(m.Value())
		if rows++; rows < loadChunk {
			continue
		}
		if err := c.deliver(ctx, batches, generation); err != nil {
			return err
		}
		batches, rows = map[uint16]*restoredRows{}, 0
	}
	if err := m.Err(); err != nil {
		return err
	}
	if err := c.deliver(ctx, batches, generation); err != nil {
		return err
	}
	c.cfg.Post(func() error { return c.finishLoading(generation) })
	return nil
}

// deliver adds batches to their states and waits until that is done, so that the loader is never more than a chunk ahead.
func (c *core) deliver(ctx context.Context, batches map[uint16]*restoredRows, generation int) error {
	for _, b := range batches {
		b.state.measure(b.rows, b.size)
	}
	done := make(chan struct{})
	c.cfg.Post(func() error {
		defer close(done)
		if c.closed || c.generation != generation {
			return nil
		}
		for _, b := range batches {
			b.apply()
		}
		return nil
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// finishLoading makes the tables all there is.
func (c *core) finishLoading(generation int) error {
	if c.closed || c.generation != generation {
		return nil
	}
	c.mode = resident
	for _, d := range c.states {
		d.state.loaded()
	}
	c.retire(c.chain)
	c.chain = nil
	return nil
}
