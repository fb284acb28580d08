package statebackend

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-stream/weir/statebackend/segment"
)

// loadChunk is how many restored rows are added to the tables at a time, between records.
const loadChunk = 256

// startLoader reads all restored rows on a goroutine of its own and adds them to the tables on the backend's.
func (c *core) startLoader(sources []segment.Source) {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.loading.Go(func() {
		if err := c.load(ctx, sources); err != nil && ctx.Err() == nil {
			c.cfg.Post(func() error { return fmt.Errorf("restore operator %s: %w", c.cfg.Operator, err) })
		}
	})
}

func (c *core) load(ctx context.Context, sources []segment.Source) (err error) {
	m, err := segment.NewMerge(sources, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	batches := map[uint16]batch{}
	rows := 0
	for m.Seek(segment.AppendPrefix(nil, c.cfg.KeyGroups.First, 0)); m.Valid(); m.Next() {
		id := segment.State(m.Key())
		d := c.byID[id]
		if d == nil {
			continue // dropped
		}
		if batches[id] == nil {
			batches[id] = d.state.newBatch()
		}
		if err := batches[id].decode(m.Key(), m.Value()); err != nil {
			return c.decodeError(m.Key(), err)
		}
		c.rows.Add(1)
		c.rowBytes.Add(int64(len(m.Key()) + len(m.Value())))
		if rows++; rows < loadChunk {
			continue
		}
		if err := c.deliver(ctx, batches); err != nil {
			return err
		}
		batches, rows = map[uint16]batch{}, 0
	}
	if err := m.Err(); err != nil {
		return err
	}
	if err := c.deliver(ctx, batches); err != nil {
		return err
	}
	// finishLoading closes the segments, which must not be in use.
	if err := m.Close(); err != nil {
		return err
	}
	c.cfg.Post(c.finishLoading)
	return nil
}

// deliver adds batches to their states and waits until that is done, so that the loader is never more than a chunk ahead.
func (c *core) deliver(ctx context.Context, batches map[uint16]batch) error {
	done := make(chan struct{})
	c.cfg.Post(func() error {
		defer close(done)
		if c.closed {
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
func (c *core) finishLoading() error {
	if c.closed {
		return nil
	}
	c.complete = true
	for _, d := range c.states {
		d.state.loaded()
	}
	return c.closeChain()
}
