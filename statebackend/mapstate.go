package statebackend

import (
	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend/segment"
)

// mapState is a mapTable as the backend sees it.
type mapState[K, MK comparable, V any] struct{ *mapTable[K, MK, V] }

func (s mapState[K, MK, V]) restore() error { return nil }
func (s mapState[K, MK, V]) loaded()        {}

func (s mapState[K, MK, V]) changes(from uint64) changes {
	c := &journalChanges[mapKey[K, MK], V]{frozen: s.frozen}
	c.rowChanges = rowChanges[mapKey[K, MK], V]{from: from, row: s.appendRow, value: s.encode, aging: agingAt(s.d.expiry, s.age, nil)}
	return c
}

func (s mapState[K, MK, V]) count() int { return s.live }

func (s mapState[K, MK, V]) bytes(perRow int64) int64 {
	const perMap = 200 // an empty map of Go
	return int64(s.live)*(perRow+entryOverheadOf[mapKey[K, MK], V]()) + int64(len(s.maps))*perMap
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

// reap implements expiry.reap.
func (s mapState[K, MK, V]) reap(upTo uint64, visits int) (visited, removed int) {
	for _, m := range s.maps {
		for _, e := range m.rows {
			if visited++; visited > visits {
				return visits, removed
			}
			if e.deleted || !s.gone(e.value) {
				continue
			}
			switch {
			case e.epoch <= upTo:
			case e.epoch == s.core.epoch && e.born == e.epoch:
				s.remove(e)
			default:
				continue
			}
			s.live--
			removed++
			s.leave(m, e)
		}
	}
	return visited, removed
}

func (s mapState[K, MK, V]) newBatch() batch { return &mapBatch[K, MK, V]{s: s.mapTable} }

type mapBatch[K, MK comparable, V any] struct {
	s      *mapTable[K, MK, V]
	keys   []mapKey[K, MK]
	values []V
	raw    []byte
}

func (b *mapBatch[K, MK, V]) decode(row, value []byte, at stamp) error {
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
	v, err := b.s.decode(value, at)
	if err != nil {
		return err
	}
	b.keys, b.values = append(b.keys, mapKey[K, MK]{k, mk}), append(b.values, v)
	return nil
}

func (b *mapBatch[K, MK, V]) apply() {
	for i, key := range b.keys {
		if b.s.gone(b.values[i]) {
			continue
		}
		m := b.s.maps[key.k]
		if m == nil {
			m = b.s.newSubmap(key.k, false)
		}
		if !m.loaded && m.rows[key.mk] == nil {
			b.s.insert(m, key, b.values[i])
		}
	}
}
