package statebackend

import (
	"bytes"
	"slices"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// Map is a state with a map per key. While restored state is not yet loaded, the first use of a key loads its whole map.
type Map[K, MK comparable, V any] struct {
	journal[mapKey[K, MK], V]
	b      *Backend[K]
	d      *declaration
	mapKey codec.Key[MK]
	codec  codec.Codec[V]
	maps   map[K]*submap[K, MK, V]
	live   int
}

type mapKey[K, MK comparable] struct {
	k  K
	mk MK
}

// submap is the map of one key.
type submap[K, MK comparable, V any] struct {
	rows   map[MK]*entry[mapKey[K, MK], V]
	last   uint64 // epoch of the last change
	loaded bool   // has every restored row
	used   bool   // as of an entry
}

// NewMap declares a state.
func NewMap[K, MK comparable, V any](b *Backend[K], name string, kc codec.Key[MK], c codec.Codec[V]) *Map[K, MK, V] {
	d := &declaration{
		name: name, kind: kindMap, keyCodec: b.key.ID() + "/" + kc.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c),
	}
	s := &Map[K, MK, V]{
		journal: journal[mapKey[K, MK], V]{core: b.core}, b: b, d: d, mapKey: kc, codec: c, maps: map[K]*submap[K, MK, V]{},
	}
	b.core.declare(d, mapState[K, MK, V]{s})
	return s
}

// Get returns the value of mk in the map of k, which must not be modified.
func (s *Map[K, MK, V]) Get(k K, mk MK) (v V, ok bool, err error) {
	m, err := s.open(k)
	if m == nil || err != nil {
		return v, false, err
	}
	e := m.rows[mk]
	if e == nil || e.deleted {
		return v, false, nil
	}
	return e.value, true, nil
}

// Put sets the value of mk in the map of k; it must not be modified afterwards.
func (s *Map[K, MK, V]) Put(k K, mk MK, v V) error {
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
	} else {
		if old.deleted {
			s.live++
		}
		e = s.renew(old)
	}
	if e != old {
		m.rows[mk] = e
	}
	e.value, e.deleted, m.last = v, false, s.core.epoch
	s.exhume(2, s.forget)
	return nil
}

// Delete removes mk from the map of k.
func (s *Map[K, MK, V]) Delete(k K, mk MK) error {
	m, err := s.open(k)
	if m == nil || err != nil {
		return err
	}
	if e := m.rows[mk]; e != nil && !e.deleted {
		s.kill(m, e)
	}
	return nil
}

// Clear removes the map of k.
func (s *Map[K, MK, V]) Clear(k K) error {
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

// Range calls fn for the entries of k's map in the order of the encoded map keys until it returns false. fn may change the map; the
// walk is over the map as it was at the start.
func (s *Map[K, MK, V]) Range(k K, fn func(mk MK, v V) bool) error {
	m, err := s.open(k)
	if m == nil || err != nil {
		return err
	}
	type item struct {
		key []byte
		mk  MK
		v   V
	}
	items := make([]item, 0, len(m.rows))
	var keys []byte
	for mk, e := range m.rows {
		if e.deleted {
			continue
		}
		start := len(keys)
		keys = s.mapKey.Append(keys, mk)
		items = append(items, item{key: keys[start:len(keys):len(keys)], mk: mk, v: e.value})
	}
	slices.SortFunc(items, func(a, b item) int { return bytes.Compare(a.key, b.key) })
	for _, it := range items {
		if !fn(it.mk, it.v) {
			break
		}
	}
	return nil
}

// kill makes e, which is alive, a tombstone, or removes it when no snapshot can hold it.
func (s *Map[K, MK, V]) kill(m *submap[K, MK, V], e *entry[mapKey[K, MK], V]) {
	s.live--
	m.last = s.core.epoch
	if e.epoch == s.core.epoch && e.born == s.core.epoch {
		s.remove(e)
		delete(m.rows, e.key.mk)
		s.tidy(e.key.k, m)
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
func (s *Map[K, MK, V]) forget(e *entry[mapKey[K, MK], V]) {
	m := s.maps[e.key.k]
	if m == nil || m.rows[e.key.mk] != e {
		return
	}
	delete(m.rows, e.key.mk)
	s.tidy(e.key.k, m)
}

// tidy forgets an empty map, unless it is needed to know that k has no restored rows.
func (s *Map[K, MK, V]) tidy(k K, m *submap[K, MK, V]) {
	if len(m.rows) == 0 && s.core.mode == resident {
		delete(s.maps, k)
	}
}

func (s *Map[K, MK, V]) newSubmap(k K, loaded bool) *submap[K, MK, V] {
	m := &submap[K, MK, V]{rows: map[MK]*entry[mapKey[K, MK], V]{}, loaded: loaded}
	s.maps[k] = m
	return m
}

// open returns the map of k with every restored row; nil when there is none.
func (s *Map[K, MK, V]) open(k K) (*submap[K, MK, V], error) {
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
	err := s.core.chain.scan(prefix, func(row, value []byte, _ stamp) (bool, error) {
		mk, err := s.mapKey.Decode(row[len(prefix):])
		if err == nil && m.rows[mk] == nil {
			var v V
			if v, err = s.codec.Decode(value); err == nil {
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
func (s *Map[K, MK, V]) insert(m *submap[K, MK, V], key mapKey[K, MK], v V) {
	m.rows[key.mk] = &entry[mapKey[K, MK], V]{key: key, value: v}
	s.live++
	s.core.added()
}

// appendKey appends the start of the rows of k's map.
func (s *Map[K, MK, V]) appendKey(dst []byte, k K) []byte {
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

func (s *Map[K, MK, V]) appendRow(dst []byte, key mapKey[K, MK]) []byte {
	return s.mapKey.Append(s.appendKey(dst, key.k), key.mk)
}

// mapState is a Map as the backend sees it.
type mapState[K, MK comparable, V any] struct{ *Map[K, MK, V] }

func (s mapState[K, MK, V]) restore() error { return nil }
func (s mapState[K, MK, V]) loaded()        {}

func (s mapState[K, MK, V]) changes(from uint64) changes {
	return &journalChanges[mapKey[K, MK], V]{frozen: s.frozen, from: from, row: s.appendRow, value: s.codec.Append}
}

func (s mapState[K, MK, V]) count() int { return s.live }

func (s mapState[K, MK, V]) bytes(perRow int64) int64 {
	const perMap = 200 // an empty map of Go
	return int64(s.live)*(perRow+rowOverhead[mapKey[K, MK], V]()) + int64(len(s.maps))*perMap
}

func (s mapState[K, MK, V]) held() int { return len(s.maps) }

// evict takes whole maps: what is left of one says nothing about the rest.
func (s mapState[K, MK, V]) evict(want int, upTo uint64, visits int) int {
	return sampleOf(s.maps, want, visits, func(m *submap[K, MK, V]) bool {
		if m.last > upTo {
			return false
		}
		unused := !m.used
		m.used = false
		return unused
	}, func(k K, m *submap[K, MK, V]) {
		for _, e := range m.rows {
			if !e.deleted {
				s.live--
			}
		}
		delete(s.maps, k)
	})
}

func (s mapState[K, MK, V]) newBatch() batch { return &mapBatch[K, MK, V]{s: s.Map} }

type mapBatch[K, MK comparable, V any] struct {
	s      *Map[K, MK, V]
	keys   []mapKey[K, MK]
	values []V
	raw    []byte
}

func (b *mapBatch[K, MK, V]) decode(row, value []byte, _ stamp) error {
	raw, rest, err := codec.CutEscaped(b.raw[:0], row[segment.PrefixSize:])
	if err != nil {
		return err
	}
	b.raw = raw
	k, err := b.s.b.key.Decode(raw)
	if err != nil {
		return err
	}
	mk, err := b.s.mapKey.Decode(rest)
	if err != nil {
		return err
	}
	v, err := b.s.codec.Decode(value)
	if err != nil {
		return err
	}
	b.keys, b.values = append(b.keys, mapKey[K, MK]{k, mk}), append(b.values, v)
	return nil
}

func (b *mapBatch[K, MK, V]) apply() {
	for i, key := range b.keys {
		m := b.s.maps[key.k]
		if m == nil {
			m = b.s.newSubmap(key.k, false)
		}
		if !m.loaded && m.rows[key.mk] == nil {
			b.s.insert(m, key, b.values[i])
		}
	}
}
