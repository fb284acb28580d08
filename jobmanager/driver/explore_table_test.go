package driver

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// pair is a key of two numbers; what it stands for is packed into them.
type pair [2]uint64

// table maps pairs to numbers. There are tens of millions of look-ups, so it takes one miss of the cache for each and shows the garbage
// collector no pointer. Keys are never removed.
type table struct {
	slots []tableSlot
	n     int
}

type tableSlot struct {
	key   pair
	value uint32 // one more than it; 0 for an empty slot
}

// hashed stands for something long.
func hashed(b []byte) pair {
	h := sha256.Sum256(b)
	return pair{binary.LittleEndian.Uint64(h[:8]), binary.LittleEndian.Uint64(h[8:16])}
}

func (p pair) hash() uint64 {
	hi, lo := bits.Mul64(p[0]^0x9e3779b97f4a7c15, p[1]^0xe7037ed1a0b428db)
	h := hi ^ lo ^ p[0]*0xa0761d6478bd642f
	return h ^ h>>29
}

func (t *table) slot(key pair) *tableSlot {
	mask := uint64(len(t.slots) - 1)
	for i := key.hash() & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.value == 0 || s.key == key {
			return s
		}
	}
}

func (t *table) get(key pair) (value uint32, ok bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	s := t.slot(key)
	return s.value - 1, s.value != 0
}

func (t *table) put(key pair, value uint32) {
	if 2*t.n >= len(t.slots) {
		old := t.slots
		t.slots = make([]tableSlot, max(1<<10, 2*len(old)))
		for _, s := range old {
			if s.value != 0 {
				*t.slot(s.key) = s
			}
		}
	}
	s := t.slot(key)
	if s.value == 0 {
		t.n++
	}
	*s = tableSlot{key, value + 1}
}

// interned numbers the values that it is shown, from 0.
type interned[T comparable] struct {
	list  []T
	index map[T]uint32
}

func (n *interned[T]) number(v T) uint32 {
	id, ok := n.index[v]
	if !ok {
		if n.index == nil {
			n.index = map[T]uint32{}
		}
		id = uint32(len(n.list))
		n.list = append(n.list, v)
		n.index[v] = id
	}
	return id
}

// named numbers values that have a name each.
type named[T any] struct {
	names interned[string]
	list  []T
}

func (n *named[T]) number(name string, v T) uint32 {
	id := n.names.number(name)
	if int(id) == len(n.list) {
		n.list = append(n.list, v)
	}
	return id
}
