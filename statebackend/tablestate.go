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
	frozen []frozenRefs
	chunks chunks[TK, V]
	refs   []uint32
}

func (c *tableChanges[TK, V]) collect() int {
	for i := len(c.frozen) - 1; i >= 0 && c.frozen[i].epoch > c.from; i-- {
		c.refs = appendRefs(c.refs, &c.frozen[i].dirty)
	}
	return len(c.refs)
}

// appendRefs appends the versions of an epoch in the order in which they lie in memory.
func appendRefs(dst []uint32, dirty *dirtySet[uint32]) []uint32 {
	var s sorter
	s.begin(dirty.len())
	i, all := 0, uint64(0)
	for _, refs := range dirty.chunks {
		for _, ref := range refs {
			s.items[i].head = uint64(ref)
			all |= uint64(ref)
			i++
		}
	}
	s.sort(all)
	dst = slices.Grow(dst, len(s.items))
	for _, it := range s.items {
		dst = append(dst, uint32(it.head))
	}
	return dst
}

func (c *tableChanges[TK, V]) appendTo(dst []byte, i int, value bool) ([]byte, int, fate, error) {
	e := c.chunks.at(c.refs[i])
	return c.append(dst, e.key, e.value, e.deleted, uint64(e.born), value)
}

func (c *tableChanges[TK, V]) stamp(i int) stamp {
	if c.aging == nil {
		return noStamp
	}
	return c.aging.age(c.chunks.at(c.refs[i]).value)
}

func (c *tableChanges[TK, V]) appendValue(dst []byte, i int) ([]byte, error) {
	return c.encode(dst, c.chunks.at(c.refs[i]).value)
}

// rowChanges is how changed rows of a state are written.
type rowChanges[TK comparable, V any] struct {
	from  uint64
	row   func(dst []byte, k TK) []byte
	value func(dst []byte, v V) ([]byte, error)
	aging *aging[V]
}

func (c *rowChanges[TK, V]) append(dst []byte, k TK, v V, deleted bool, born uint64, value bool) (_ []byte, key int, _ fate, err error) {
	start := len(dst)
	dst = c.row(dst, k)
	key = len(dst) - start
	switch {
	case deleted || c.aging != nil && c.aging.gone(c.aging.age(v)):
		if born <= c.from {
			return dst, key, buried, nil
		}
		return dst, key, neverWas, nil
	case value:
		dst, err = c.encode(dst, v)
	}
	return dst, key, alive, err
}

func (c *rowChanges[TK, V]) encode(dst []byte, v V) ([]byte, error) {
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

func (c *journalChanges[TK, V]) appendTo(dst []byte, i int, value bool) ([]byte, int, fate, error) {
	e := c.versions[i]
	return c.append(dst, e.key, e.value, e.deleted, e.born, value)
}

func (c *journalChanges[TK, V]) stamp(i int) stamp {
	if c.aging == nil {
		return noStamp
	}
	return c.aging.age(c.versions[i].value)
}

func (c *journalChanges[TK, V]) appendValue(dst []byte, i int) ([]byte, error) {
	return c.encode(dst, c.versions[i].value)
}
