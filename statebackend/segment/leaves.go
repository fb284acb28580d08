package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
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

// find returns the number of the leaf that may have a key; false when the branches have to tell.
func (l *leaves) find(key []byte) (number uint64, ok bool) {
	at := startOf(key)
	i := l.search(at)
	if i < 0 || l.starts[i] == at {
		return 0, false
	}
	return l.numbers[i], true
}

// guess is find that tells where in the leaf the key is, in parts of 2^32, if what keys begin with is spread evenly.
func (l *leaves) guess(key []byte) (number, part uint64, ok bool) {
	at := startOf(key)
	i := l.search(at)
	if i < 0 || l.starts[i] == at {
		return 0, 0, false
	}
	if i+1 < len(l.starts) {
		first := l.starts[i]
		part = uint64(at.minus(first) / l.starts[i+1].minus(first) * (1 << 32))
	}
	return l.numbers[i], part, true
}

// minus returns the difference to a lower start, about.
func (s start) minus(lower start) float64 {
	low, borrow := bits.Sub64(s[1], lower[1], 0)
	high, _ := bits.Sub64(s[0], lower[0], borrow)
	return float64(high)*(1<<64) + float64(low)
}

// search returns the last leaf that does not begin behind a start; -1 when there is none.
func (l *leaves) search(at start) int {
	low := 0 // leaves before do not begin behind key
	for n := len(l.starts); n > 0; {
		half := (n + 1) / 2
		middle := &l.starts[low+half-1]
		// Without a branch, which would be foreseen half of the time.
		_, behind := bits.Sub64(at[1], middle[1], 0)
		_, behind = bits.Sub64(at[0], middle[0], behind)
		low += half & (int(behind) - 1)
		n -= half
	}
	return low - 1
}

// leafBytes is what the index has for each leaf.
const leafBytes = 24

// Held is how many bytes the segment takes in memory beside its mapped file: its index of leaves, or all of it when it travelled by value.
func (s *Segment) Held() (n int64) {
	if l := s.leaves.Load(); l != nil {
		n = leafBytes * int64(len(l.numbers))
	}
	for _, b := range s.blocks {
		n += int64(len(b))
	}
	return n
}

// PrepareCost bounds what Prepare adds to Held.
func (s *Segment) PrepareCost() int64 {
	if s.pages == nil || s.leaves.Load() != nil {
		return 0
	}
	return leafBytes * int64(uint64(len(s.pages.data))/s.pages.size)
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
