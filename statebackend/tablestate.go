package statebackend

// The methods below make a table a state.

func (t *table[TK, V]) restore() error { return nil }
func (t *table[TK, V]) loaded()        {}

func (t *table[TK, V]) changes(from uint64) changes {
	return &journalChanges[TK, V]{frozen: t.frozen, from: from, row: t.appendRow, value: t.encode, aging: agingAt(t.expiry, t.age, t.trim)}
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
		if b.t.rows[k] == nil && !b.t.gone(b.values[i]) {
			b.t.insert(k, b.values[i])
		}
	}
}

// journalChanges are the versions of some epochs. Nothing in them changes while a snapshot that holds them is written.
type journalChanges[TK comparable, V any] struct {
	frozen   []frozenEpoch[TK, V]
	from     uint64
	row      func(dst []byte, k TK) []byte
	value    func(dst []byte, v V) ([]byte, error)
	aging    *aging[V]
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
	return e.deleted || c.aging != nil && c.aging.gone(c.aging.age(e.value)), e.born <= c.from
}

func (c *journalChanges[TK, V]) stamp(i int) stamp {
	if c.aging == nil {
		return noStamp
	}
	return c.aging.age(c.versions[i].value)
}

func (c *journalChanges[TK, V]) appendValue(dst []byte, i int) ([]byte, error) {
	v := c.versions[i].value
	if c.aging != nil && c.aging.trim != nil {
		v = c.aging.trim(v, &c.aging.horizon)
	}
	return c.value(dst, v)
}

func (c *journalChanges[TK, V]) drops() []int64 { return nil }
