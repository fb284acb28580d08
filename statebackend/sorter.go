package statebackend

import (
	"cmp"
	"slices"
)

// sorter sorts the numbers from 0 on by heads, in a time that does not grow with the logarithm of how many there are.
type sorter struct {
	items, spare []item
}

type item struct {
	head uint64
	n    uint32
}

// begin makes the items those with the numbers below n, in order.
func (s *sorter) begin(n int) {
	s.items = slices.Grow(s.items[:0], n)[:n]
	for i := range s.items {
		s.items[i] = item{n: uint32(i)}
	}
}

// sort sorts the items by head, and keeps the order of those with the same one. differ has the bits in which heads differ.
func (s *sorter) sort(differ uint64) {
	const few = 64
	if len(s.items) < few {
		slices.SortStableFunc(s.items, func(a, b item) int { return cmp.Compare(a.head, b.head) })
		return
	}
	s.spare = slices.Grow(s.spare[:0], len(s.items))[:len(s.items)]
	for shift := 0; shift < 64; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var starts [256]uint32
		for _, it := range s.items {
			starts[it.head>>shift&0xff]++
		}
		total := uint32(0)
		for b, n := range starts {
			starts[b] = total
			total += n
		}
		for _, it := range s.items {
			b := it.head >> shift & 0xff
			s.spare[starts[b]] = it
			starts[b]++
		}
		s.items, s.spare = s.spare, s.items
	}
}
