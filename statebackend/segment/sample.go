package segment

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// Sample calls fn for rows that lie together at a place that random decides on: it returns a number from 0 up to below n. All rows are about
// as likely to be seen. The arguments of fn are valid until it returns.
func (s *Segment) Sample(random func(n int) int, fn func(key []byte, tombstone bool, stamp int64)) (err error) {
	defer func() {
		if err != nil && s.path != "" {
			err = fmt.Errorf("state segment %s: %w", s.path, err)
		}
	}()
	defer func(before bool) { err = errors.Join(err, caught(recover(), before)) }(debug.SetPanicOnFault(true))
	if s.pages == nil {
		if len(s.blocks) == 0 {
			return nil
		}
		return s.each(s.blocks[random(len(s.blocks))], fn)
	}
	t, err := s.pages.bucket(blocksBucket)
	if err != nil {
		return err
	}
	n := t.root
	for depth := 0; !n.leaf; depth++ {
		if depth == maxDepth || n.count == 0 {
			return fmt.Errorf("%w: pages lead nowhere", ErrCorrupt)
		}
		if n, err = s.pages.node(n.child(random(n.count))); err != nil {
			return err
		}
	}
	for i := range n.count {
		block, _, err := n.value(i)
		if err != nil {
			return err
		}
		if err := s.each(block, fn); err != nil {
			return err
		}
	}
	return nil
}

// each calls fn for the rows of a block.
func (s *Segment) each(block []byte, fn func(key []byte, tombstone bool, stamp int64)) error {
	var r blockReader
	if err := r.reset(block, s.bounded()); err != nil {
		return err
	}
	for {
		more, err := r.next()
		if !more || err != nil {
			return err
		}
		fn(r.key, r.tombstone, r.stamp)
	}
}
