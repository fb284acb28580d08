package statebackend

import (
	"bytes"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// mapTable is a map of rows per key, over the segments. While rows are in segments only, the first use of a key loads its whole map; a
// walk between bounds does not.
type mapTable[K, MK comparable, V any] struct {
	journal[mapKey[K, MK], V]
	b      *Backend[K]
	d      *declaration
	mapKey codec.Key[MK]
	encode func(dst []byte, v V) ([]byte, error)
	decode func(value []byte, at stamp) (V, error)
	maps   map[K]*submap[K, MK, V]
	live   int
	// age is of a state whose entries expire: it returns a value's stamp.
	age func(v V) stamp
}

type mapKey[K, MK comparable] struct {
	k  K
	mk MK
}

// submap is the map of one key.
type submap[K, MK comparable, V any] struct {
	rows   map[MK]*entry[mapKey[K, MK], V]
	order  *order[MK] // of rows; nil until the map is large and walked over
	last   uint64     // epoch of the last change
	loaded bool       // has every restored row
	used   bool       // as of an entry
}

func newMapTable[K, MK comparable, V any](
	b *Backend[K], d *declaration, kc codec.Key[MK], encode func([]byte, V) ([]byte, error), decode func([]byte, stamp) (V, error),
) *mapTable[K, MK, V] {
	s := &mapTable[K, MK, V]{
		journal: journal[mapKey[K, MK], V]{core: b.core}, b: b, d: d, mapKey: kc, encode: encode, decode: decode, maps: map[K]*submap[K, MK, V]{},
	}
	b.core.declare(d, mapState[K, MK, V]{s})
	return s
}

// get returns the version of a row, nil when there is none. It is no tombstone.
func (s *mapTable[K, MK, V]) get(k K, mk MK) (*entry[mapKey[K, MK], V], error) {
	m, err := s.open(k)
	if m == nil || err != nil {
		return nil, err
	}
	e := m.rows[mk]
	if e == nil || e.deleted {
		return nil, nil
	}
	return e, nil
}

func (s *mapTable[K, MK, V]) put(k K, mk MK, v V) error {
	m, err := s.open(k)
	if err != nil {
		return err
	}
	if m == nil {
		m = s.newSubmap(k, true)
	}
	old := m.rows[mk]
	var e *entry[mapKey[K, MK], V]
	if old == nil {
		e = &entry[mapKey[K, MK], V]{key: mapKey[K, MK]{k, mk}, born: s.core.epoch}
		s.add(e)
		s.live++
		s.enter(m, e)
	} else {
		if old.deleted {
			s.live++
		}
		if e = s.renew(old); e != old {
			m.rows[mk] = e
		}
	}
	e.value, e.deleted, m.last = v, false, s.core.epoch
	s.exhume(2, s.forget)
	return nil
}

func (s *mapTable[K, MK, V]) removeRow(k K, mk MK) error {
	m, err := s.open(k)
	if m == nil || err != nil {
		return err
	}
	if e := m.rows[mk]; e != nil && !e.deleted {
		s.kill(m, e)
	}
	return nil
}

func (s *mapTable[K, MK, V]) clear(k K) error {
	m, err := s.open(k)
	if m == nil || err != nil {
		return err
	}
	for _, e := range m.rows {
		if !e.deleted {
			s.kill(m, e)
		}
	}
	return nil
}

// enter makes e a row of a map that has none of its key.
func (s *mapTable[K, MK, V]) enter(m *submap[K, MK, V], e *entry[mapKey[K, MK], V]) {
	m.rows[e.key.mk] = e
	if m.order != nil {
		m.order.insert(s.mapKey.Append(nil, e.key.mk), e.key.mk)
	}
}

// leave removes a row from its map.
func (s *mapTable[K, MK, V]) leave(m *submap[K, MK, V], e *entry[mapKey[K, MK], V]) {
	delete(m.rows, e.key.mk)
	if m.order != nil {
		key := s.mapKey.Append(s.core.scratch[:0], e.key.mk)
		m.order.remove(key)
		s.core.scratch = key[:0]
	}
	s.tidy(e.key.k, m)
}

// gone reports whether a value has expired.
func (s *mapTable[K, MK, V]) gone(v V) bool { return s.d.expiry != nil && s.d.expiry.gone(s.age(v)) }

// kill makes e, which is alive, a tombstone, or removes it when no snapshot can hold it.
func (s *mapTable[K, MK, V]) kill(m *submap[K, MK, V], e *entry[mapKey[K, MK], V]) {
	s.live--
	m.last = s.core.epoch
	if e.epoch == s.core.epoch && e.born == s.core.epoch {
		s.remove(e)
		s.leave(m, e)
		return
	}
	old := e
	if e = s.renew(old); e != old {
		m.rows[e.key.mk] = e
	}
	var none V
	e.value, e.deleted = none, true
	s.bury(e)
	s.exhume(2, s.forget)
}

// forget removes a tombstone, unless the row has another version by now.
func (s *mapTable[K, MK, V]) forget(e *entry[mapKey[K, MK], V]) {
	m := s.maps[e.key.k]
	if m == nil || m.rows[e.key.mk] != e {
		return
	}
	s.leave(m, e)
}

// tidy forgets an empty map, unless it is needed to know that k has no restored rows.
func (s *mapTable[K, MK, V]) tidy(k K, m *submap[K, MK, V]) {
	if len(m.rows) == 0 && s.core.mode == resident {
		delete(s.maps, k)
	}
}

func (s *mapTable[K, MK, V]) newSubmap(k K, loaded bool) *submap[K, MK, V] {
	m := &submap[K, MK, V]{rows: map[MK]*entry[mapKey[K, MK], V]{}, loaded: loaded}
	s.maps[k] = m
	return m
}

// open returns the map of k with every restored row; nil when there is none.
func (s *mapTable[K, MK, V]) open(k K) (*submap[K, MK, V], error) {
	s.core.tick()
	m := s.maps[k]
	if m != nil && !m.used {
		m.used = true
	}
	if s.core.mode == resident || m != nil && m.loaded {
		return m, nil
	}
	prefix := s.appendKey(s.core.scratch[:0], k)
	s.core.scratch = prefix[:0]
	if !s.core.chain.mayContain(prefix) {
		if m != nil {
			m.loaded = true
		}
		return m, nil
	}
	if m == nil {
		m = s.newSubmap(k, false)
	}
	err := s.core.chain.scan(prefix, func(row, value []byte, at stamp) (bool, error) {
		mk, err := s.mapKey.Decode(row[len(prefix):])
		if err == nil && m.rows[mk] == nil {
			var v V
			if v, err = s.decode(value, at); err == nil && !s.gone(v) {
				s.insert(m, mapKey[K, MK]{k, mk}, v)
			}
		}
		if err != nil {
			return false, s.core.decodeError(row, err)
		}
		return true, nil
	})
	m.loaded = err == nil
	return m, err
}

// insert adds a row as it was restored.
func (s *mapTable[K, MK, V]) insert(m *submap[K, MK, V], key mapKey[K, MK], v V) {
	s.enter(m, &entry[mapKey[K, MK], V]{key: key, value: v})
	s.live++
	s.core.added()
}

// appendKey appends the start of the rows of k's map.
func (s *mapTable[K, MK, V]) appendKey(dst []byte, k K) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	body := start + segment.PrefixSize
	dst = s.b.key.Append(dst, k)
	segment.AppendPrefix(dst[:start], keygroup.Of(dst[body:], s.core.cfg.MaxParallelism), s.d.id)
	if bytes.IndexByte(dst[body:], 0) < 0 {
		return codec.AppendEscaped(dst, nil)
	}
	return codec.AppendEscaped(dst[:body], bytes.Clone(dst[body:]))
}

func (s *mapTable[K, MK, V]) appendRow(dst []byte, key mapKey[K, MK]) []byte {
	return s.mapKey.Append(s.appendKey(dst, key.k), key.mk)
}
