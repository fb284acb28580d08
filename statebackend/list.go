package statebackend

import (
	"encoding/binary"
	"fmt"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend/segment"
)

// List is a state with a list per key. A snapshot writes a changed list whole.
type List[K comparable, V any] struct {
	t    table[K, []V]
	aged *table[K, agedList[V]] // instead of t, when elements expire
}

// NewList declares a state. The elements of its lists live forever, or each as long as ttl says.
func NewList[K comparable, V any](b *Backend[K], name string, c codec.Codec[V], ttl ...TTL) *List[K, V] {
	d := &declaration{name: name, kind: kindList, keyCodec: b.key.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c)}
	s := &List[K, V]{}
	if d.expiry = b.core.agingOf(name, ttl); d.expiry != nil {
		s.aged = newAgedLists(b, d, c)
		b.core.declare(d, s.aged)
		return s
	}
	s.t = newKeyTable(b, d, listCodec[V]{c}.append, listCodec[V]{c}.decode)
	b.core.declare(d, &s.t)
	return s
}

// Append adds values to the list of k. They must not be modified afterwards.
func (s *List[K, V]) Append(k K, vs ...V) error {
	if len(vs) == 0 {
		return nil
	}
	if s.aged != nil {
		return s.appendAged(k, vs)
	}
	old, err := s.All(k)
	if err != nil {
		return err
	}
	// A frozen version may share the array; it does not look beyond its own length.
	s.t.edit(k).value = append(old, vs...)
	return nil
}

// All returns the list of k, which must not be modified; it is nil when nothing was appended.
func (s *List[K, V]) All(k K) ([]V, error) {
	if s.aged != nil {
		return s.allAged(k)
	}
	e, err := s.t.get(k)
	if e == nil || e.deleted {
		return nil, err
	}
	return e.value, nil
}

// Clear removes the list of k.
func (s *List[K, V]) Clear(k K) error {
	if s.aged != nil {
		s.aged.delete(k)
		return nil
	}
	s.t.delete(k)
	return nil
}

// listCodec writes each element with its length.
type listCodec[V any] struct{ element codec.Codec[V] }

func (c listCodec[V]) append(dst []byte, vs []V) ([]byte, error) {
	var err error
	for _, v := range vs {
		if dst, err = c.appendElement(dst, nil, v); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// appendElement appends an element, with something before it, and the length of both.
func (c listCodec[V]) appendElement(dst, before []byte, v V) (_ []byte, err error) {
	start := len(dst)
	dst = append(dst, 0) // the length, if it is short
	dst = append(dst, before...)
	if dst, err = c.element.Append(dst, v); err != nil {
		return nil, err
	}
	size := len(dst) - start - 1
	if size < 0x80 {
		dst[start] = byte(size)
		return dst, nil
	}
	var length [binary.MaxVarintLen64]byte
	n := binary.PutUvarint(length[:], uint64(size))
	dst = append(dst, length[1:n]...)
	copy(dst[start+n:], dst[start+1:start+1+size])
	copy(dst[start:], length[:n])
	return dst, nil
}

func (c listCodec[V]) decode(src []byte) (vs []V, err error) {
	for len(src) > 0 {
		element, rest, err := cutElement(src)
		if err != nil {
			return nil, err
		}
		v, err := c.element.Decode(element)
		if err != nil {
			return nil, err
		}
		vs, src = append(vs, v), rest
	}
	return vs, nil
}

// cutElement returns the first element of an encoded list.
func cutElement(src []byte) (element, rest []byte, err error) {
	size, n := binary.Uvarint(src)
	if n <= 0 || size > uint64(len(src)-n) {
		return nil, nil, fmt.Errorf("%w: length of a list element", segment.ErrCorrupt)
	}
	return src[n : n+int(size)], src[n+int(size):], nil
}
