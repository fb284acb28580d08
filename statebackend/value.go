package statebackend

import "github.com/weir-stream/weir/codec"

// Value is a state with one value per key.
type Value[K comparable, V any] struct {
	t    *table[K, V]
	aged *table[K, aged[V]] // instead of t, when values expire
}

// NewValue declares a state. Its values live forever, or as long as ttl says.
func NewValue[K comparable, V any](b *Backend[K], name string, c codec.Codec[V], ttl ...TTL) *Value[K, V] {
	d := &declaration{name: name, kind: kindValue, keyCodec: b.key.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c)}
	s := &Value[K, V]{}
	if d.expiry = b.core.agingOf(name, ttl); d.expiry != nil {
		s.aged = newAgedTable(b, d, c.Append, c.Decode)
		b.core.declare(d, s.aged)
		return s
	}
	t := newKeyTable(b, d, c.Append, c.Decode)
	s.t = &t
	b.core.declare(d, s.t)
	return s
}

// Get returns the value of k, which must not be modified.
func (s *Value[K, V]) Get(k K) (v V, ok bool, err error) {
	if s.aged != nil {
		return s.getAged(k)
	}
	e, err := s.t.get(k)
	if e == nil || e.deleted {
		return v, false, err
	}
	return e.value, true, nil
}

func (s *Value[K, V]) getAged(k K) (v V, ok bool, err error) {
	e, err := s.aged.get(k)
	if e == nil || e.deleted || s.aged.expiry.view.gone(e.value.at) {
		return v, false, err
	}
	x, got := s.aged.expiry, e.value
	if at := x.later(got.at); x.ttl.RefreshedByReads && at != got.at {
		s.aged.edit(k).value = aged[V]{got.value, at}
	}
	return got.value, true, nil
}

// Put sets the value of k, which must not be modified afterwards.
func (s *Value[K, V]) Put(k K, v V) error {
	if s.aged != nil {
		s.aged.edit(k).value = aged[V]{v, s.aged.expiry.now}
		return nil
	}
	s.t.edit(k).value = v
	return nil
}

// Delete removes the value of k.
func (s *Value[K, V]) Delete(k K) error {
	if s.aged != nil {
		s.aged.delete(k)
		return nil
	}
	s.t.delete(k)
	return nil
}
