package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
)

// leaves are the leaf pages of a tree, found at once instead of by way of its branches. They are told apart by what the first key of each
// begins with; where that does not decide, the branches do.
type leaves struct {
	starts  []start
	numbers []uint64 // of pages
}

// start is what a key begins with, filled up with zeros, as numbers.
type start [2]uint64

func startOf(key []byte) start {
	if len(key) >= 16 {
		return start{binary.BigEndian.Uint64(key), binary.BigEndian.Uint64(key[8:])}
	}
	var b [16]byte
	copy(b[:], key)
	return start{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
}

func (s start) less(other start) bool {
	return s[0] < other[0] || s[0] == other[0] && s[1] < other[1]
}

// find returns the number of the leaf that may have a key; false when the branches have to tell.
func (l *leaves) find(key []byte) (number uint64, ok bool) {
	at := startOf(key)
	low, high := 0, len(l.starts) // leaves before low do not begin behind key, from high on they do
	for low < high {
		middle := int(uint(low+high) / 2)
		if at.less(l.starts[middle]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low == 0 || l.starts[low-1] == at {
		return 0, false
	}
	return l.numbers[low-1], true
}

// Prepare makes later searches in the segment faster. It reads the branches of the file, one page in about a hundred, and keeps some 24
// bytes in memory for each of the others.
func (s *Segment) Prepare() (err error) {
	if s.pages == nil || s.leaves.Load() != nil {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("state segment %s: %w", s.path, err)
		}
	}()
	defer func(before bool) { err = errors.Join(err, caught(recover(), before)) }(debug.SetPanicOnFault(true))
	t, err := s.pages.bucket(blocksBucket)
	if err != nil {
		return err
	}
	l := &leaves{}
	if err := l.collect(s.pages, t.root, 0); err != nil {
		return err
	}
	l.starts, l.numbers = slices.Clip(l.starts), slices.Clip(l.numbers)
	s.leaves.Store(l)
	return nil
}

// collect adds the leaves below a page.
func (l *leaves) collect(p *pages, n node, depth int) error {
	if n.leaf || n.count == 0 {
		return nil // a tree of one page
	}
	if depth == maxDepth {
		return fmt.Errorf("%w: pages lead nowhere", ErrCorrupt)
	}
	first, err := p.node(n.child(0)) // the others are of the same kind
	if err != nil {
		return err
	}
	for i := range n.count {
		if !first.leaf {
			child, err := p.node(n.child(i))
			if err == nil {
				err = l.collect(p, child, depth+1)
			}
			if err != nil {
				return err
			}
			continue
		}
		k, err := n.key(i)
		if err != nil {
			return err
		}
		if uint64(len(l.numbers)) > uint64(len(p.data))/p.size {
			return fmt.Errorf("%w: more leaves than pages", ErrCorrupt)
		}
		l.starts, l.numbers = append(l.starts, startOf(k)), append(l.numbers, n.child(i))
	}
	return nil
}
