package statebackend

import "unsafe"

// table is rows of one key each, over the restored segments.
type table[TK comparable, V any] struct {
	core *core
	rows rows[TK, V]
	// dirty has the versions of the current epoch, frozen those of the epochs after the last completed checkpoint, oldest first. Frozen
	// snapshots share the array, so it is only ever appended to or replaced.
	dirty  dirtySet[uint32]
	frozen []frozenRefs
	// graves has the tombstones to be forgotten, oldest first.
	graves []graveRef
	live   int
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

type frozenRefs struct {
	epoch uint64
	dirty dirtySet[uint32]
}

type graveRef struct {
	ref   uint32
	epoch uint32
}

// get returns the version of k's row, nil when there is none. The version may be a tombstone.
func (t *table[TK, V]) get(k TK) (*cell[TK, V], error) {
	t.core.tick()
	if _, e := t.rows.find(k); e != nil {
		if e.use < 1 {
			e.use++
		}
		return e, nil
	}
	if t.core.mode == resident {
		return nil, nil
	}
	return t.read(k)
}

func (t *table[TK, V]) expects() bool { return t.rows.large() || t.core.mode == partial }

func (t *table[TK, V]) expect(keys []TK) {
	c := t.core
	c.absent = t.rows.fetch(keys, c.absent[:0])
	if c.mode == resident || len(c.absent) == 0 {
		return
	}
	c.questions, c.scratch = c.questions[:0], c.scratch[:0]
	for _, i := range c.absent {
		start := len(c.scratch)
		c.scratch = t.appendRow(c.scratch, keys[i])
		c.questions = append(c.questions, c.chain.question(c.scratch[start:len(c.scratch):len(c.scratch)]))
	}
	// Whatever is wrong comes up again when the key is asked for.
	if c.chain.ask(c.questions) != nil {
		return
	}
	for n, i := range c.absent {
		q := &c.questions[n]
		if !q.Found || q.Tombstone || t.rows.has(keys[i]) {
			continue
		}
		if v, err := t.decode(q.Value, stamp(q.Stamp)); err == nil && !t.gone(v) {
			t.insert(keys[i], v).use = -1
		}
	}
}

// read looks for a row that is not in memory in the segments.
func (t *table[TK, V]) read(k TK) (*cell[TK, V], error) {
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
	t.rows.sample(visits, func(ref uint32, e *cell[TK, V]) bool {
		visited++
		switch {
		case e.deleted || !t.gone(e.value):
			return true
		case uint64(e.epoch) <= upTo:
			t.rows.remove(ref, e, t.core.released)
		case t.newborn(e):
			t.abandon(ref, e)
		default:
			return true
		}
		t.live--
		removed++
		return true
	})
	return visited, removed
}

// insert adds a row as it was restored.
func (t *table[TK, V]) insert(k TK, v V) *cell[TK, V] {
	_, e := t.rows.add(k, t.core.released)
	e.value = v
	t.live++
	t.core.added()
	return e
}

// edit returns the version of k's row to be changed, with whatever value it has; the caller sets the value whole. It does not read the
// segments.
func (t *table[TK, V]) edit(k TK) *cell[TK, V] {
	t.core.tick()
	ref, e := t.rows.find(k)
	if e == nil {
		born := t.bornNow(k)
		ref, e = t.rows.add(k, t.core.released)
		e.born = uint32(born)
		t.mark(ref, e)
		t.live++
		return e
	}
	if uint64(e.epoch) == t.core.epoch && !e.deleted {
		return e
	}
	if e.deleted {
		t.live++
	}
	_, e = t.renew(ref, e)
	e.deleted = false
	t.exhume(2)
	return e
}

// renew returns the version of a row to be changed in the current epoch: e itself when nothing refers to it any more, else a new one
// without a value.
func (t *table[TK, V]) renew(ref uint32, e *cell[TK, V]) (uint32, *cell[TK, V]) {
	switch {
	case uint64(e.epoch) == t.core.epoch:
		return ref, e
	case uint64(e.epoch) > t.core.released:
		ref, e = t.rows.succeed(ref, e, t.core.released)
	}
	t.mark(ref, e)
	return ref, e
}

// mark makes e a version of the current epoch.
func (t *table[TK, V]) mark(ref uint32, e *cell[TK, V]) {
	e.epoch = uint32(t.core.epoch)
	e.pos = uint32(t.dirty.add(ref))
	t.core.added()
}

// newborn reports whether e is of a key that came in the current epoch.
func (t *table[TK, V]) newborn(e *cell[TK, V]) bool {
	return uint64(e.epoch) == t.core.epoch && e.born == e.epoch
}

// abandon removes a row that is newborn.
func (t *table[TK, V]) abandon(ref uint32, e *cell[TK, V]) {
	forgetDirty(&t.dirty, &t.rows, e.pos)
	t.rows.drop(ref, e)
}

// forgetDirty takes the version at a place out of a dirty set.
func forgetDirty[K comparable, V any](dirty *dirtySet[uint32], r *rows[K, V], pos uint32) {
	r.at(dirty.remove(int(pos))).pos = pos
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
	ref, e := t.rows.find(k)
	switch {
	case e == nil && (t.core.mode == resident || !t.mayBeRestored(k)), e != nil && e.deleted:
		return
	case e == nil:
		ref, e = t.rows.add(k, t.core.released)
		t.mark(ref, e)
	case t.newborn(e):
		t.abandon(ref, e)
		t.live--
		return
	default:
		t.live--
		ref, e = t.renew(ref, e)
	}
	var none V
	e.value, e.deleted = none, true
	t.graves = append(t.graves, graveRef{ref, e.epoch})
	t.exhume(2)
}

// exhume removes at most limit tombstones that no snapshot to come needs and that hide nothing any more.
func (t *table[TK, V]) exhume(limit int) {
	upTo := t.core.forgettable()
	for ; limit > 0 && len(t.graves) > 0 && uint64(t.graves[0].epoch) <= upTo; limit-- {
		g := t.graves[0]
		t.graves = t.graves[1:]
		if !t.rows.holds(g.ref) {
			continue
		}
		if e := t.rows.at(g.ref); e.current && e.deleted && e.epoch == g.epoch {
			t.rows.remove(g.ref, e, t.core.released)
		}
	}
}

// freeze ends the current epoch.
func (t *table[TK, V]) freeze() {
	if t.dirty.len() > 0 {
		t.frozen = append(t.frozen, frozenRefs{epoch: t.core.epoch, dirty: t.dirty})
		t.dirty = dirtySet[uint32]{}
	}
}

// release drops the epochs that a completed checkpoint covers.
func (t *table[TK, V]) release() {
	var kept []frozenRefs
	for _, f := range t.frozen {
		if f.epoch > t.core.completed {
			kept = append(kept, f)
		}
	}
	t.frozen = kept
}

func (t *table[TK, V]) count() int { return t.live }

func (t *table[TK, V]) held() int { return t.rows.len() }

func (t *table[TK, V]) evict(want int, upTo uint64, visits int) (evicted int) {
	refs := t.core.refs[:0]
	t.rows.sample(visits, func(ref uint32, e *cell[TK, V]) bool {
		if evictable(e, upTo) {
			e.current = false // a sample of a small table comes by again
			refs = append(refs, ref)
		}
		return len(refs) < want
	})
	t.rows.removeAll(refs, t.core.released)
	t.live -= len(refs)
	t.core.refs = refs
	return len(refs)
}

// evictable reports whether an entry can go: nothing changed since epoch upTo, and nobody asked for it since it was last looked at.
func evictable[TK comparable, V any](e *cell[TK, V], upTo uint64) bool {
	if uint64(e.epoch) > upTo || e.deleted {
		return false
	}
	unused := e.use < 1
	e.use = min(e.use, 0)
	return unused
}

func (t *table[TK, V]) bytes(perRow int64) int64 {
	return int64(t.rows.len()) * (perRow + rowOverhead[TK, V]())
}

// rowOverhead is what a row costs besides the encoding of its row: its version, a version that a snapshot still needs now and then, and
// its place in the index.
func rowOverhead[TK comparable, V any]() int64 {
	return int64(unsafe.Sizeof(cell[TK, V]{})) + 16
}
