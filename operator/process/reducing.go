package process

import (
	"errors"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend"
)

// Reducing is one value per key, into which values are merged.
type Reducing[K comparable, V any] struct {
	options options
	key     *K
	state   *statebackend.Reducing[K, V]
}

// NewReducing declares a value per key into which others are merged. Without a codec it is encoded by codec.For.
func NewReducing[V any, K comparable](s *States[K], name string, merge func(a, b V) V, c ...codec.Codec[V]) *Reducing[K, V] {
	vc, err := choose(c)
	if merge == nil && err == nil {
		err = errors.New("it has no function that merges")
	}
	s.declare(name, "value", err, idOf(vc, err))
	r := &Reducing[K, V]{key: s.key, options: s.options(name)}
	s.declared = append(s.declared, func() { r.state = statebackend.NewReducing(s.backend, name, vc, merge, r.options.ttl...) })
	return r
}

// WithTTL gives values a time to live, counted from the last Add; an expired value is as good as deleted, so that the next Add begins
// anew.
func (r *Reducing[K, V]) WithTTL(ttl TTL) *Reducing[K, V] {
	r.options.setTTL(ttl.ttl)
	return r
}

// Add merges a value into that of the current key, or makes it the value when there is none. It must not be modified afterwards.
func (r *Reducing[K, V]) Add(value V) error { return r.state.Add(*r.key, value) }

// Get returns the value of the current key; ok is false without one.
func (r *Reducing[K, V]) Get() (value V, ok bool, err error) { return r.state.Get(*r.key) }

// Delete removes the value of the current key.
func (r *Reducing[K, V]) Delete() error { return r.state.Delete(*r.key) }
