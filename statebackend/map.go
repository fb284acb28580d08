package statebackend

import "github.com/weir-stream/weir/codec"

// Map is a state with a map per key.
type Map[K, MK comparable, V any] struct {
	t    *mapTable[K, MK, V]
	aged *mapTable[K, MK, aged[V]] // instead of t, when entries expire
}

// NewMap declares a state. Its entries live forever, or each as long as ttl says.
func NewMap[K, MK comparable, V any](b *Backend[K], name string, kc codec.Key[MK], c codec.Codec[V], ttl ...TTL) *Map[K, MK, V] {
	d := &declaration{
		name: name, kind: kindMap, keyCodec: b.key.ID() + "/" + kc.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c),
	}
	if d.expiry = b.core.agingOf(name, ttl); d.expiry == nil {
		return &Map[K, MK, V]{t: newMapTable(b, d, kc, c.Append, func(value []byte, _ stamp) (V, error) { return c.Decode(value) })}
	}
	s := &Map[K, MK, V]{aged: newMapTable(b, d, kc, encodeAged(c.Append), decodeAged(c.Decode))}
	s.aged.age, d.expiry.reap = ageOf[V], mapState[K, MK, aged[V]]{s.aged}.reap
	return s
}

// Get returns the value of mk in the map of k, which must not be modified.
func (s *Map[K, MK, V]) Get(k K, mk MK) (v V, ok bool, err error) {
	if s.aged != nil {
		return s.getAged(k, mk)
	}
	e, err := s.t.get(k, mk)
	if e == nil {
		return v, false, err
	}
	return e.value, true, nil
}

func (s *Map[K, MK, V]) getAged(k K, mk MK) (v V, ok bool, err error) {
	e, err := s.aged.get(k, mk)
	x := s.aged.d.expiry
	if e == nil || x.view.gone(e.value.at) {
		return v, false, err
	}
	got := e.value
	return got.value, true, s.refresh(k, mk, got)
}

// refresh stamps an entry that was read.
func (s *Map[K, MK, V]) refresh(k K, mk MK, read aged[V]) error {
	x := s.aged.d.expiry
	if at := x.later(read.at); x.ttl.RefreshedByReads && at != read.at {
		return s.aged.put(k, mk, aged[V]{read.value, at})
	}
	return nil
}

// Put sets the value of mk in the map of k; it must not be modified afterwards.
func (s *Map[K, MK, V]) Put(k K, mk MK, v V) error {
	if s.aged != nil {
		return s.aged.put(k, mk, aged[V]{v, s.aged.d.expiry.now})
	}
	return s.t.put(k, mk, v)
}

// Delete removes mk from the map of k.
func (s *Map[K, MK, V]) Delete(k K, mk MK) error {
	if s.aged != nil {
		return s.aged.removeRow(k, mk)
	}
	return s.t.removeRow(k, mk)
}

// Clear removes the map of k.
func (s *Map[K, MK, V]) Clear(k K) error {
	if s.aged != nil {
		return s.aged.clear(k)
	}
	return s.t.clear(k)
}

// Range calls fn for the entries of k's map in the order of the encoded map keys until it returns false. fn may change the map; what it
// changes ahead, the walk comes to as it was or as it is.
func (s *Map[K, MK, V]) Range(k K, fn func(mk MK, v V) bool) error {
	if s.aged != nil {
		if _, err := s.aged.open(k); err != nil {
			return err
		}
	} else if _, err := s.t.open(k); err != nil {
		return err
	}
	return s.walk(k, bounds{}, fn)
}

// RangeFrom is Range for the entries from a map key on. It reads no more of the segments than it comes to.
func (s *Map[K, MK, V]) RangeFrom(k K, from MK, fn func(mk MK, v V) bool) error {
	return s.walk(k, bounds{from: s.encode(from)}, fn)
}

// RangeBetween is Range for the entries from a map key on, and before another. It reads no more of the segments than it comes to.
func (s *Map[K, MK, V]) RangeBetween(k K, from, to MK, fn func(mk MK, v V) bool) error {
	return s.walk(k, bounds{from: s.encode(from), to: s.encode(to)}, fn)
}

// encode returns the encoding of a map key, which is not nil.
func (s *Map[K, MK, V]) encode(mk MK) []byte {
	if s.aged != nil {
		return s.aged.mapKey.Append([]byte{}, mk)
	}
	return s.t.mapKey.Append([]byte{}, mk)
}

func (s *Map[K, MK, V]) walk(k K, within bounds, fn func(mk MK, v V) bool) error {
	if s.aged == nil {
		return s.t.walk(k, within, fn)
	}
	var failed error
	err := s.aged.walk(k, within, func(mk MK, v aged[V]) bool {
		failed = s.refresh(k, mk, v)
		return failed == nil && fn(mk, v.value)
	})
	if err == nil {
		err = failed
	}
	return err
}
