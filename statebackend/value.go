package statebackend

import "github.com/weir-stream/weir/codec"

// Value is a state with one value per key.
type Value[K comparable, V any] struct {
	t table[K, V]
}

// NewValue declares a state.
func NewValue[K comparable, V any](b *Backend[K], name string, c codec.Codec[V]) *Value[K, V] {
	d := &declaration{name: name, kind: kindValue, keyCodec: b.key.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c)}
	s := &Value[K, V]{t: newKeyTable(b, d, c.Append, c.Decode)}
	b.core.declare(d, &s.t)
	return s
}

// Get returns the value of k, which must not be modified.
func (s *Value[K, V]) Get(k K) (v V, ok bool, err error) {
	e, err := s.t.get(k)
	if e == nil || e.deleted {
		return v, false, err
	}
	return e.value, true, nil
}

// Put sets the value of k, which must not be modified afterwards.
func (s *Value[K, V]) Put(k K, v V) error {
	s.t.edit(k).value = v
	return nil
}

// Delete removes the value of k.
func (s *Value[K, V]) Delete(k K) error {
	s.t.delete(k)
	return nil
}
