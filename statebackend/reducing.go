package statebackend

import "github.com/weir-stream/weir/codec"

// Reducing is a state with one value per key, into which values are merged. It is kept as a Value is, and each may take up the other's
// state.
type Reducing[K comparable, V any] struct {
	Value[K, V]
	merge func(a, b V) V
}

// NewReducing declares a state. merge must not modify its arguments. The values live forever, or as long as ttl says.
func NewReducing[K comparable, V any](b *Backend[K], name string, c codec.Codec[V], merge func(a, b V) V, ttl ...TTL) *Reducing[K, V] {
	return &Reducing[K, V]{Value: *NewValue(b, name, c, ttl...), merge: merge}
}

// Add merges v into the value of k, or makes it the value when there is none. v must not be modified afterwards.
func (s *Reducing[K, V]) Add(k K, v V) error {
	if s.aged != nil {
		return s.addAged(k, v)
	}
	e, err := s.t.get(k)
	if err != nil {
		return err
	}
	if e != nil && !e.deleted {
		v = s.merge(e.value, v)
	}
	s.t.edit(k).value = v
	return nil
}

func (s *Reducing[K, V]) addAged(k K, v V) error {
	e, err := s.aged.get(k)
	if err != nil {
		return err
	}
	x := s.aged.expiry
	next := aged[V]{v, x.now}
	if e != nil && !e.deleted && !x.view.gone(e.value.at) {
		next = aged[V]{s.merge(e.value.value, v), x.later(e.value.at)}
	}
	s.aged.edit(k).value = next
	return nil
}
