package statebackend

import (
	"bytes"
	"slices"
)

// bounds are encoded map keys, from the first one on to before the second; a nil one is no bound.
type bounds struct{ from, to []byte }

// passed reports whether a key lies behind the bounds.
func (b bounds) passed(key []byte) bool { return b.to != nil && bytes.Compare(key, b.to) >= 0 }

// found is a row that a walk has come to.
type found[MK comparable, V any] struct {
	key []byte
	mk  MK
	v   V
}

// walk calls fn for the rows of k's map within bounds, in the order of the encoded map keys, until fn returns false. It takes some rows at a
// time, more and more, so that fn may change the map and a walk that ends early has not read much.
func (s *mapTable[K, MK, V]) walk(k K, within bounds, fn func(mk MK, v V) bool) error {
	const few, many = 32, 1024
	for limit := few; ; limit = min(2*limit, many) {
		rows, err := s.collect(k, within, limit)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !fn(r.mk, r.v) {
				return nil
			}
		}
		if len(rows) < limit {
			return nil
		}
		within.from = append(rows[len(rows)-1].key, 0) // the next key there can be
	}
}

// collect returns the first rows within bounds.
func (s *mapTable[K, MK, V]) collect(k K, within bounds, limit int) (rows []found[MK, V], err error) {
	s.core.tick()
	m := s.maps[k]
	if m != nil {
		m.used = true
	}
	// add takes a row that is there and reports whether there is room for more.
	add := func(key []byte, mk MK, v V) bool {
		if s.d.expiry == nil || !s.d.expiry.view.gone(s.age(v)) {
			rows = append(rows, found[MK, V]{key, mk, v})
		}
		return len(rows) < limit
	}
	if s.core.mode == resident || m != nil && m.loaded {
		s.each(m, within, func(key orderedKey[MK], e *entry[mapKey[K, MK], V]) bool {
			return e.deleted || add(key.key, key.mk, e.value)
		})
		return rows, nil
	}
	err = s.merge(k, m, within, add)
	return rows, err
}

// merge calls add for the rows of segments and of m, which have not all been loaded.
func (s *mapTable[K, MK, V]) merge(k K, m *submap[K, MK, V], within bounds, add func([]byte, MK, V) bool) error {
	var held []orderedKey[MK] // of m; each hides the row of segments
	s.each(m, within, func(key orderedKey[MK], _ *entry[mapKey[K, MK], V]) bool {
		held = append(held, key)
		return true
	})
	// upTo adds the held rows before a key, and reports whether there is room for more and the key is held.
	upTo := func(key []byte) (more, is bool) {
		for len(held) > 0 && (key == nil || bytes.Compare(held[0].key, key) <= 0) {
			h := held[0]
			held = held[1:]
			if e := m.rows[h.mk]; !e.deleted && !add(h.key, h.mk, e.value) {
				return false, false
			}
			if bytes.Equal(h.key, key) {
				return true, true
			}
		}
		return true, false
	}
	prefix := s.appendKey(nil, k)
	if !s.core.chain.mayContain(prefix) {
		upTo(nil)
		return nil
	}
	more := true
	err := s.core.chain.scanFrom(prefix, within.from, func(row, value []byte, at stamp) (bool, error) {
		key := row[len(prefix):]
		if within.passed(key) {
			return false, nil
		}
		var is bool
		if more, is = upTo(key); !more || is {
			return more, nil
		}
		mk, err := s.mapKey.Decode(key)
		if err != nil {
			return false, s.core.decodeError(row, err)
		}
		v, err := s.decode(value, at)
		if err != nil {
			return false, s.core.decodeError(row, err)
		}
		if !s.gone(v) {
			more = add(bytes.Clone(key), mk, v)
		}
		return more, nil
	})
	if more && err == nil {
		upTo(nil)
	}
	return err
}

// each calls fn for the rows that a map holds within bounds, in order, until it returns false. fn must not change the map.
func (s *mapTable[K, MK, V]) each(m *submap[K, MK, V], within bounds, fn func(orderedKey[MK], *entry[mapKey[K, MK], V]) bool) {
	if m == nil {
		return
	}
	const large = 64 // from where on it is worth to keep the order
	if m.order == nil && len(m.rows) < large {
		keys := s.keys(m, within)
		slices.SortFunc(keys, func(a, b orderedKey[MK]) int { return bytes.Compare(a.key, b.key) })
		for _, key := range keys {
			if !fn(key, m.rows[key.mk]) {
				return
			}
		}
		return
	}
	if m.order == nil {
		m.order = newOrder(s.keys(m, bounds{}))
	}
	m.order.from(within.from, func(key orderedKey[MK]) bool {
		return !within.passed(key.key) && fn(key, m.rows[key.mk])
	})
}

// keys returns the encoded keys of a map's rows within bounds.
func (s *mapTable[K, MK, V]) keys(m *submap[K, MK, V], within bounds) []orderedKey[MK] {
	keys := make([]orderedKey[MK], 0, len(m.rows))
	var arena []byte
	for mk := range m.rows {
		start := len(arena)
		arena = s.mapKey.Append(arena, mk)
		if key := arena[start:len(arena):len(arena)]; bytes.Compare(key, within.from) >= 0 && !within.passed(key) {
			keys = append(keys, orderedKey[MK]{key, mk})
		}
	}
	return keys
}
