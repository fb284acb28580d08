package statebackend

import (
	"bytes"
	"slices"
	"sort"
)

// orderChunk bounds the chunks of an order, so that a change moves few keys.
const orderChunk = 256

// order is map keys in the order of their encodings, in chunks.
type order[MK comparable] struct {
	chunks [][]orderedKey[MK]
}

type orderedKey[MK comparable] struct {
	key []byte
	mk  MK
}

func compareKeys[MK comparable](a orderedKey[MK], key []byte) int { return bytes.Compare(a.key, key) }

// newOrder takes over keys in any order.
func newOrder[MK comparable](keys []orderedKey[MK]) *order[MK] {
	slices.SortFunc(keys, func(a, b orderedKey[MK]) int { return bytes.Compare(a.key, b.key) })
	o := &order[MK]{}
	for part := range slices.Chunk(keys, orderChunk/2) {
		o.chunks = append(o.chunks, slices.Clone(part))
	}
	return o
}

// chunk returns the first chunk that ends at key or after.
func (o *order[MK]) chunk(key []byte) int {
	return sort.Search(len(o.chunks), func(i int) bool {
		c := o.chunks[i]
		return bytes.Compare(c[len(c)-1].key, key) >= 0
	})
}

// insert adds a key that is not there.
func (o *order[MK]) insert(key []byte, mk MK) {
	i := o.chunk(key)
	if i == len(o.chunks) {
		if i == 0 {
			o.chunks = append(o.chunks, nil)
		} else {
			i--
		}
	}
	c := o.chunks[i]
	at, _ := slices.BinarySearchFunc(c, key, compareKeys)
	c = slices.Insert(c, at, orderedKey[MK]{key, mk})
	o.chunks[i] = c
	if len(c) > orderChunk {
		o.chunks[i] = slices.Clone(c[:len(c)/2])
		o.chunks = slices.Insert(o.chunks, i+1, slices.Clone(c[len(c)/2:]))
	}
}

func (o *order[MK]) remove(key []byte) {
	i := o.chunk(key)
	if i == len(o.chunks) {
		return
	}
	at, ok := slices.BinarySearchFunc(o.chunks[i], key, compareKeys)
	if !ok {
		return
	}
	if o.chunks[i] = slices.Delete(o.chunks[i], at, at+1); len(o.chunks[i]) == 0 {
		o.chunks = slices.Delete(o.chunks, i, i+1)
	}
}

// from calls fn for the keys from key on until it returns false. fn must not change the order.
func (o *order[MK]) from(key []byte, fn func(k orderedKey[MK]) bool) {
	for i := o.chunk(key); i < len(o.chunks); i++ {
		c := o.chunks[i]
		at, _ := slices.BinarySearchFunc(c, key, compareKeys)
		for _, k := range c[at:] {
			if !fn(k) {
				return
			}
		}
	}
}
