package statebackend

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend/segment"
)

// agedList is a list whose elements expire one by one. A version shares its arrays with later ones and does not look beyond its own length.
type agedList[V any] struct {
	values []V
	at     []stamp // of each value
	// latest is the stamp of what expires last, which is the row's; noStamp when no element has one.
	latest stamp
}

func latestOf[V any](l agedList[V]) stamp { return l.latest }

// without returns the list without what has expired, which most often is at its start.
func (l agedList[V]) without(h *horizon) agedList[V] {
	first := 0
	for first < len(l.at) && h.gone(l.at[first]) {
		first++
	}
	l.values, l.at = l.values[first:], l.at[first:]
	if !slices.ContainsFunc(l.at, h.gone) {
		return l
	}
	kept := agedList[V]{latest: l.latest}
	for i, at := range l.at {
		if !h.gone(at) {
			kept.values, kept.at = append(kept.values, l.values[i]), append(kept.at, at)
		}
	}
	return kept
}

// latest returns a stamp for a list with elements of such stamps, which expires when all of them have.
func (h *horizon) latest(stamps []stamp) stamp {
	if !slices.ContainsFunc(stamps, func(s stamp) bool { return s != noStamp }) {
		return noStamp
	}
	until := NoTime
	for _, s := range stamps {
		until = max(until, h.countsFrom(s))
	}
	return stampOf(until, h.kind)
}

func newAgedLists[K comparable, V any](b *Backend[K], d *declaration, c codec.Codec[V]) *table[K, agedList[V]] {
	lists := agedListCodec[V]{listCodec[V]{c}}
	t := newKeyTable(b, d, lists.append, nil)
	t.decode = lists.decode
	t.expiry, t.age, t.trim = d.expiry, latestOf[V], agedList[V].without
	d.expiry.reap = t.reap
	return &t
}

func (s *List[K, V]) appendAged(k K, vs []V) error {
	e, err := s.aged.get(k)
	if err != nil {
		return err
	}
	x := s.aged.expiry
	var l agedList[V]
	if e != nil && !e.deleted {
		l = e.value.without(&x.horizon)
	}
	l.values = append(l.values, vs...)
	for range vs {
		l.at = append(l.at, x.now)
	}
	l.latest = x.latest(l.at)
	s.aged.edit(k).value = l
	return nil
}

func (s *List[K, V]) allAged(k K) ([]V, error) {
	e, err := s.aged.get(k)
	if e == nil || e.deleted {
		return nil, err
	}
	x, held := s.aged.expiry, e.value
	seen := held.without(&x.view)
	if x.ttl.RefreshedByReads && len(seen.values) > 0 {
		held.at = slices.Clone(held.at)
		for i, at := range held.at {
			if !x.view.gone(at) {
				held.at[i] = x.later(at)
			}
		}
		if !slices.Equal(held.at, e.value.at) {
			held.latest = x.latest(held.at)
			s.aged.edit(k).value = held
		}
	}
	if len(seen.values) == 0 {
		return nil, nil
	}
	return seen.values, nil
}

// agedListCodec writes a list without stamps as listCodec does. Else each element begins with how much earlier than the row's its stamp is.
type agedListCodec[V any] struct{ listCodec[V] }

func (c agedListCodec[V]) append(dst []byte, l agedList[V]) ([]byte, error) {
	if l.latest == noStamp {
		return c.listCodec.append(dst, l.values)
	}
	var head [binary.MaxVarintLen64]byte
	var err error
	for i, v := range l.values {
		n := binary.PutVarint(head[:], int64(l.latest-l.at[i])) // which may wrap, and back
		if dst, err = c.appendElement(dst, head[:n], v); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func (c agedListCodec[V]) decode(src []byte, at stamp) (l agedList[V], err error) {
	l.latest = at
	if at == noStamp {
		l.values, err = c.listCodec.decode(src)
		l.at = slices.Repeat([]stamp{noStamp}, len(l.values))
		return l, err
	}
	for len(src) > 0 {
		element, rest, err := cutElement(src)
		if err != nil {
			return l, err
		}
		own, payload, err := cutStamp(element, at)
		if err != nil {
			return l, err
		}
		v, err := c.element.Decode(payload)
		if err != nil {
			return l, err
		}
		l.values, l.at, src = append(l.values, v), append(l.at, own), rest
	}
	return l, nil
}

// cutStamp returns the stamp of an element of a row with a stamp.
func cutStamp(element []byte, row stamp) (own stamp, payload []byte, err error) {
	earlier, n := binary.Varint(element)
	if n <= 0 {
		return noStamp, nil, fmt.Errorf("%w: stamp of a list element", segment.ErrCorrupt)
	}
	return row - stamp(earlier), element[n:], nil
}

// trimList appends an encoded list with a stamp without the elements that have expired.
func trimList(dst, src []byte, row stamp, h *horizon) ([]byte, error) {
	for len(src) > 0 {
		element, rest, err := cutElement(src)
		if err != nil {
			return nil, err
		}
		own, _, err := cutStamp(element, row)
		if err != nil {
			return nil, err
		}
		if !h.gone(own) {
			dst = append(dst, src[:len(src)-len(rest)]...)
		}
		src = rest
	}
	return dst, nil
}
