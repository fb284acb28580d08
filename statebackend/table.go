package statebackend

import "unsafe"

// table is rows of one key each, over the restored segments.
type table[TK comparable, V any] struct {
	journal[TK, V]
	rows map[TK]*entry[TK, V]
	live int
	// appendRow appends a row's key in segments.
	appendRow func(dst []byte, k TK) []byte
	// decodeRow reads a row's key in segments.
	decodeRow func(row []byte) (TK, error)
	// encode and decode are for a row's value in segments.
	encode func(dst []byte, v V) ([]byte, error)
	decode func(value []byte, at stamp) (V, error)
	// expiry and age are of a state whose entries expire: age returns a value's stamp.
	expiry *expiry
	age    func(v V) stamp
	// trim returns a value without what in it has expired; nil for a state whose values expire as a whole.
	trim func(v V, h *horizon) V
}

// get returns the version of k's row, nil when there is none. The version may be a tombstone.
func (t *table[TK, V]) get(k TK) (*entry[TK, V], error) {
	t.core.tick()
	if e := t.rows[k]; e != nil {
		if !e.used {
			e.used = true
		}
		return e, nil
	}
	if t.core.mode == resident {
		return nil, nil
	}
	row := t.appendRow(t.core.scratch[:0], k)
	t.core.scratch = row[:0]
	value, at, ok, err := t.core.chain.lookup(row, false)
	if err != nil || !ok {
		return nil, err
	}
	v, err := t.decode(value, at)
	if err != nil {
		return nil, t.core.decodeError(row, err)
	}
	if t.gone(v) {
		return nil, nil
	}
	return t.insert(k, v), nil
}

// gone reports whether a value has expired.
func (t *table[TK, V]) gone(v V) bool { return t.expiry != nil && t.expiry.gone(t.age(v)) }

// reap implements expiry.reap. Of an entry in segments no tombstone stays: they have its stamp.
func (t *table[TK, V]) reap(upTo uint64, visits int) (visited, removed int) {
	for k, e := range t.rows {
		if visited == visits {
			break
		}
		visited++
		if e.deleted || !t.gone(e.value) {
			continue
		}
		switch {
		case e.epoch <= upTo:
		case e.epoch == t.core.epoch && e.born == e.epoch:
			t.remove(e)
		default:
			continue
		}
		delete(t.rows, k)
		t.live--
		removed++
	}
	return visited, removed
}

// insert adds a row as it was restored.
func (t *table[TK, V]) insert(k TK, v V) *entry[TK, V] {
	e := &entry[TK, V]{key: k, value: v}
	t.rows[k] = e
	t.live++
	t.core.added()
	return e
}

// edit returns the version of k's row to be changed, with whatever value it has; the caller sets the value whole. It does not read the
// segments.
func (t *table[TK, V]) edit(k TK) *entry[TK, V] {
	t.core.tick()
	e := t.rows[k]
	if e == nil {
		e = &entry[TK, V]{key: k, born: t.bornNow(k)}
		t.add(e)
		t.rows[k] = e
		t.live++
		return e
	}
	if e.epoch == t.core.epoch && !e.deleted {
		return e
	}
	old := e
	if old.deleted {
		t.live++
	}
	if e = t.renew(old); e != old {
		t.rows[k] = e
	}
	e.deleted = false
	t.exhume(2, t.forget)
	return e
}

// bornNow returns the epoch of birth of a row that is not in the table.
func (t *table[TK, V]) bornNow(k TK) uint64 {
	if t.core.mode == resident || !t.mayBeRestored(k) {
		return t.core.epoch
	}
	return 0
}

func (t *table[TK, V]) mayBeRestored(k TK) bool {
	row := t.appendRow(t.core.scratch[:0], k)
	t.core.scratch = row[:0]
	return t.core.chain.mayContain(row)
}

// delete removes k's row.
func (t *table[TK, V]) delete(k TK) {
	t.core.tick()
	e := t.rows[k]
	switch {
	case e == nil && (t.core.mode == resident || !t.mayBeRestored(k)), e != nil && e.deleted:
		return
	case e == nil:
		e = &entry[TK, V]{key: k}
		t.rows[k] = e
		t.add(e)
	case e.epoch == t.core.epoch && e.born == t.core.epoch:
		t.remove(e)
		delete(t.rows, k)
		t.live--
		return
	default:
		t.live--
		old := e
		if e = t.renew(old); e != old {
			t.rows[k] = e
		}
	}
	var none V
	e.value, e.deleted = none, true
	t.bury(e)
	t.exhume(2, t.forget)
}

// forget removes a tombstone from the table, unless the row has another version by now.
func (t *table[TK, V]) forget(e *entry[TK, V]) {
	if t.rows[e.key] == e {
		delete(t.rows, e.key)
	}
}

func (t *table[TK, V]) count() int { return t.live }

func (t *table[TK, V]) held() int { return len(t.rows) }

func (t *table[TK, V]) evict(want int, upTo uint64, visits int) int {
	return sampleOf(t.rows, want, visits, func(e *entry[TK, V]) bool { return evictable(e, upTo) }, func(k TK, _ *entry[TK, V]) {
		delete(t.rows, k)
		t.live--
	})
}

// evictable reports whether an entry can go: nothing changed since epoch upTo, and nobody asked for it since it was last looked at.
func evictable[TK comparable, V any](e *entry[TK, V], upTo uint64) bool {
	if e.epoch > upTo || e.deleted {
		return false
	}
	unused := !e.used
	e.used = false
	return unused
}

func (t *table[TK, V]) bytes(perRow int64) int64 {
	return int64(len(t.rows)) * (perRow + rowOverhead[TK, V]())
}

// rowOverhead is what an entry costs besides the encoding of its row: the entry, and its place in the map, which is three quarters full
// on average.
func rowOverhead[TK comparable, V any]() int64 {
	var k TK
	return int64(unsafe.Sizeof(entry[TK, V]{})) + (int64(unsafe.Sizeof(k))+9)*4/3
}
