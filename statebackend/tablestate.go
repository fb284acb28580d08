package statebackend

import "slices"

// The methods below make a table a state.

func (t *table[TK, V]) restore() error { return nil }
func (t *table[TK, V]) loaded()        {}

func (t *table[TK, V]) changes(from uint64) changes {
	c := &tableChanges[TK, V]{frozen: t.frozen, chunks: t.rows.chunks}
	c.rowChanges = rowChanges[TK, V]{from: from, row: t.appendRow, value: t.encode, aging: agingAt(t.expiry, t.age, t.trim)}
	return c
}

func (t *table[TK, V]) newBatch() batch { return &tableBatch[TK, V]{t: t} }

// tableBatch is decoded rows on their way into a table.
type tableBatch[TK comparable, V any] struct {
	t      *table[TK, V]
	keys   []TK
	values []V
}

func (b *tableBatch[TK, V]) decode(row, value []byte, at stamp) error {
	k, err := b.t.decodeRow(row)
	if err != nil {
		return err
	}
	v, err := b.t.decode(value, at)
	if err != nil {
		return err
	}
	b.keys, b.values = append(b.keys, k), append(b.values, v)
	return nil
}

func (b *tableBatch[TK, V]) apply() {
	for i, k := range b.keys {
		if !b.t.rows.has(k) && !b.t.gone(b.values[i]) {
			b.t.insert(k, b.values[i])
		}
	}
}

// tableChanges are the versions of some epochs. Nothing in them changes while a snapshot that holds them is written.
type tableChanges[TK comparable, V any] struct {
	rowChanges[TK, V]
	frozen   []frozenRefs
	chunks   []*chunk[TK, V]
	versions []*cell[TK, V]
}

func (c *tableChanges[TK, V]) collect() int {
	for i := len(c.frozen) - 1; i >= 0 && c.frozen[i].epoch > c.from; i-- {
		c.versions = appendVersions(c.versions, c.chunks, &c.frozen[i].dirty)
	}
	return len(c.versions)
}

func appendVersions[K comparable, V any](dst []*cell[K, V], chunks []*chunk[K, V], dirty *dirtySet[uint32]) []*cell[K, V] {
	dst = slices.Grow(dst, dirty.len())
	for _, refs := range dirty.chunks {
		for _, ref := range refs {
			dst = append(dst, at(chunks, ref))
		}
	}
	return dst
}

func (c *tableChanges[TK, V]) appendRow(dst []byte, i int) []byte {
	return c.row(dst, c.versions[i].key)
}

func (c *tableChanges[TK, V]) tombstone(i int) (dead, needed bool) {
	e := c.versions[i]
	return c.dead(e.deleted, e.value), uint64(e.born) <= c.from
}

func (c *tableChanges[TK, V]) stamp(i int) stamp { return c.stampOf(c.versions[i].value) }

func (c *tableChanges[TK, V]) appendValue(dst []byte, i int) ([]byte, error) {
	return c.append(dst, c.versions[i].value)
}

// rowChanges is how changed rows of a state are written.
type rowChanges[TK comparable, V any] struct {
	from  uint64
	row   func(dst []byte, k TK) []byte
	value func(dst []byte, v V) ([]byte, error)
	aging *aging[V]
}

func (c *rowChanges[TK, V]) dead(deleted bool, v V) bool {
	return deleted || c.aging != nil && c.aging.gone(c.aging.age(v))
}

func (c *rowChanges[TK, V]) stampOf(v V) stamp {
	if c.aging == nil {
		return noStamp
	}
	return c.aging.age(v)
}

func (c *rowChanges[TK, V]) append(dst []byte, v V) ([]byte, error) {
	if c.aging != nil && c.aging.trim != nil {
		v = c.aging.trim(v, &c.aging.horizon)
	}
	return c.value(dst, v)
}

func (c *rowChanges[TK, V]) drops() []int64 { return nil }

// journalChanges are the versions of some epochs of a journal.
type journalChanges[TK comparable, V any] struct {
	rowChanges[TK, V]
	frozen   []frozenEpoch[TK, V]
	versions []*entry[TK, V]
}

func (c *journalChanges[TK, V]) collect() int {
	for i := len(c.frozen) - 1; i >= 0 && c.frozen[i].epoch > c.from; i-- {
		for _, chunk := range c.frozen[i].dirty.chunks {
			c.versions = append(c.versions, chunk...)
		}
	}
	return len(c.versions)
}

func (c *journalChanges[TK, V]) appendRow(dst []byte, i int) []byte {
	return c.row(dst, c.versions[i].key)
}

func (c *journalChanges[TK, V]) tombstone(i int) (dead, needed bool) {
	e := c.versions[i]
	return c.dead(e.deleted, e.value), e.born <= c.from
}

func (c *journalChanges[TK, V]) stamp(i int) stamp { return c.stampOf(c.versions[i].value) }

func (c *journalChanges[TK, V]) appendValue(dst []byte, i int) ([]byte, error) {
	return c.append(dst, c.versions[i].value)
}
