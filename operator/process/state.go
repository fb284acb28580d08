package process

import (
	"errors"
	"fmt"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend"
)

// States takes the declarations of an operator's states.
type States[K comparable] struct {
	backend *statebackend.Backend[K] // nil in the plan
	key     *K                       // the key being handled
	names   map[string]bool
	codecs  []string
	errs    []error
	// declared makes the states once their options are known.
	declared []func()
}

// finish ends the declarations.
func (s *States[K]) finish() error {
	if err := errors.Join(s.errs...); err != nil {
		return err
	}
	for _, d := range s.declared {
		d()
	}
	return nil
}

// options are what is chosen for a state after its name.
type options struct {
	name string
	ttl  []statebackend.TTL
	fail func(error)
}

func (o *options) setTTL(ttl statebackend.TTL) {
	if err := ttl.Validate(); err != nil {
		o.fail(fmt.Errorf("%w %q: %w", ErrDeclaration, o.name, err))
		return
	}
	o.ttl = []statebackend.TTL{ttl}
}

func (s *States[K]) options(name string) options {
	return options{name: name, fail: func(err error) { s.errs = append(s.errs, err) }}
}

// ErrDeclaration is returned in the plan for states that cannot be: the message says why.
var ErrDeclaration = errors.New("state declaration")

func (s *States[K]) declare(name, kind string, err error, ids ...string) {
	switch {
	case name == "" || name[0] == '#':
		s.errs = append(s.errs, fmt.Errorf("%w: the name %q is empty or begins with #", ErrDeclaration, name))
	case s.names[name]:
		s.errs = append(s.errs, fmt.Errorf("%w: the name %q is used twice", ErrDeclaration, name))
	}
	if err != nil {
		s.errs = append(s.errs, fmt.Errorf("%w %q: %w", ErrDeclaration, name, err))
		return
	}
	s.names[name] = true
	s.codecs = append(s.codecs, fmt.Sprintf("%s %s %v", kind, name, ids))
}

// choose returns the codec given, or the default one of V.
func choose[V any](given []codec.Codec[V]) (codec.Codec[V], error) {
	if len(given) > 0 {
		return given[0], nil
	}
	return codec.For[V]()
}

func idOf(c interface{ ID() string }, err error) string {
	if err != nil {
		return ""
	}
	return c.ID()
}

// Value is one value per key.
type Value[K comparable, V any] struct {
	options options
	key     *K
	state   *statebackend.Value[K, V]
}

// NewValue declares a value per key. Without a codec it is encoded by codec.For.
func NewValue[V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *Value[K, V] {
	vc, err := choose(c)
	s.declare(name, "value", err, idOf(vc, err))
	v := &Value[K, V]{key: s.key, options: s.options(name)}
	s.declared = append(s.declared, func() { v.state = statebackend.NewValue(s.backend, name, vc, v.options.ttl...) })
	return v
}

// WithTTL gives values a time to live; an expired value is as good as deleted.
func (v *Value[K, V]) WithTTL(ttl TTL) *Value[K, V] {
	v.options.setTTL(ttl.ttl)
	return v
}

// Get returns the value of the current key; ok is false without one.
func (v *Value[K, V]) Get() (value V, ok bool, err error) { return v.state.Get(*v.key) }

// Put sets the value of the current key. The value must not be modified afterwards.
func (v *Value[K, V]) Put(value V) error { return v.state.Put(*v.key, value) }

// Delete removes the value of the current key.
func (v *Value[K, V]) Delete() error { return v.state.Delete(*v.key) }

// Map is a map per key.
type Map[K, MK comparable, V any] struct {
	options options
	key     *K
	state   *statebackend.Map[K, MK, V]
}

// NewMap declares a map per key. Its keys are encoded by codec.ForKey, its values by codec.For unless a codec is given.
func NewMap[MK comparable, V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *Map[K, MK, V] {
	vc, err := choose(c)
	kc, kerr := codec.ForKey[MK]()
	s.declare(name, "map", errors.Join(kerr, err), idOf(kc, kerr), idOf(vc, err))
	m := &Map[K, MK, V]{key: s.key, options: s.options(name)}
	s.declared = append(s.declared, func() { m.state = statebackend.NewMap(s.backend, name, kc, vc, m.options.ttl...) })
	return m
}

// WithTTL gives each entry of the maps a time to live of its own; an expired entry is as good as deleted.
func (m *Map[K, MK, V]) WithTTL(ttl TTL) *Map[K, MK, V] {
	m.options.setTTL(ttl.ttl)
	return m
}

// Get returns the value of mk in the current key's map; ok is false without one.
func (m *Map[K, MK, V]) Get(mk MK) (value V, ok bool, err error) { return m.state.Get(*m.key, mk) }

// Put sets the value of mk in the current key's map. The value must not be modified afterwards.
func (m *Map[K, MK, V]) Put(mk MK, value V) error { return m.state.Put(*m.key, mk, value) }

// Delete removes mk from the current key's map.
func (m *Map[K, MK, V]) Delete(mk MK) error { return m.state.Delete(*m.key, mk) }

// Range calls f for the entries of the current key's map until f returns false, in the order of their keys as encoded: integers by
// size, strings by their bytes, times by time, false before true, structs and arrays by their first field or element, then the next.
// f may change the map; what it changes ahead, the walk comes to as it was or as it is.
func (m *Map[K, MK, V]) Range(f func(mk MK, value V) bool) error { return m.state.Range(*m.key, f) }

// RangeFrom is Range for the entries with keys from a given one on. It visits no others, not on disk either, and may end early at no
// cost.
func (m *Map[K, MK, V]) RangeFrom(from MK, f func(mk MK, value V) bool) error {
	return m.state.RangeFrom(*m.key, from, f)
}

// RangeBetween is Range for the entries with keys from a given one on and before another. It visits no others, not on disk either.
func (m *Map[K, MK, V]) RangeBetween(from, to MK, f func(mk MK, value V) bool) error {
	return m.state.RangeBetween(*m.key, from, to, f)
}

// Clear removes all entries of the current key's map.
func (m *Map[K, MK, V]) Clear() error { return m.state.Clear(*m.key) }

// List is a list per key.
type List[K comparable, V any] struct {
	options options
	key     *K
	state   *statebackend.List[K, V]
}

// NewList declares a list per key. Without a codec its elements are encoded by codec.For.
func NewList[V any, K comparable](s *States[K], name string, c ...codec.Codec[V]) *List[K, V] {
	vc, err := choose(c)
	s.declare(name, "list", err, idOf(vc, err))
	l := &List[K, V]{key: s.key, options: s.options(name)}
	s.declared = append(s.declared, func() { l.state = statebackend.NewList(s.backend, name, vc, l.options.ttl...) })
	return l
}

// WithTTL gives each element of the lists a time to live of its own, counted from when it was appended; an expired element is left out.
func (l *List[K, V]) WithTTL(ttl TTL) *List[K, V] {
	l.options.setTTL(ttl.ttl)
	return l
}

// Append adds values to the end of the current key's list. They must not be modified afterwards.
func (l *List[K, V]) Append(values ...V) error { return l.state.Append(*l.key, values...) }

// All returns the current key's list, which must not be modified.
func (l *List[K, V]) All() ([]V, error) { return l.state.All(*l.key) }

// Clear removes the current key's list.
func (l *List[K, V]) Clear() error { return l.state.Clear(*l.key) }
