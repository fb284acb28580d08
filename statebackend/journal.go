package statebackend

// journal records which rows of a state changed in which epoch.
type journal[TK comparable, V any] struct {
	core  *core
	dirty dirtySet[*entry[TK, V]]
	// frozen has the epochs after the last completed checkpoint, oldest first. Frozen snapshots share the array, so it is only ever
	// appended to or replaced.
	frozen []frozenEpoch[TK, V]
	// graves has the tombstones to be forgotten, oldest first.
	graves []grave[TK, V]
}

type frozenEpoch[TK comparable, V any] struct {
	epoch uint64
	dirty dirtySet[*entry[TK, V]]
}

type grave[TK comparable, V any] struct {
	e     *entry[TK, V]
	epoch uint64
}

// add makes e a version of the current epoch.
func (j *journal[TK, V]) add(e *entry[TK, V]) {
	e.epoch = j.core.epoch
	e.pos = int32(j.dirty.add(e))
	j.core.added()
}

// renew returns the version of e to be changed in the current epoch: e itself when nothing refers to it any more, else a new one
// without a value, which the caller puts in e's place.
func (j *journal[TK, V]) renew(e *entry[TK, V]) *entry[TK, V] {
	if e.epoch == j.core.epoch {
		return e
	}
	if e.epoch > j.core.released {
		e = &entry[TK, V]{key: e.key, born: e.born}
	}
	j.add(e)
	return e
}

// remove forgets a version of the current epoch whose key no snapshot holds.
func (j *journal[TK, V]) remove(e *entry[TK, V]) {
	j.dirty.remove(int(e.pos)).pos = e.pos
}

// bury remembers a tombstone of the current epoch, so that it goes when no longer needed.
func (j *journal[TK, V]) bury(e *entry[TK, V]) {
	j.graves = append(j.graves, grave[TK, V]{e: e, epoch: e.epoch})
}

// exhume calls forget for at most limit tombstones that no snapshot to come needs and that hide nothing any more.
func (j *journal[TK, V]) exhume(limit int, forget func(e *entry[TK, V])) {
	upTo := j.core.forgettable()
	for ; limit > 0 && len(j.graves) > 0 && j.graves[0].epoch <= upTo; limit-- {
		if g := j.graves[0]; g.e.deleted && g.e.epoch == g.epoch {
			forget(g.e)
		}
		j.graves[0] = grave[TK, V]{}
		j.graves = j.graves[1:]
	}
}

// freeze ends the current epoch.
func (j *journal[TK, V]) freeze() {
	if j.dirty.len() > 0 {
		j.frozen = append(j.frozen, frozenEpoch[TK, V]{epoch: j.core.epoch, dirty: j.dirty})
		j.dirty = dirtySet[*entry[TK, V]]{}
	}
}

// release drops the epochs that a completed checkpoint covers.
func (j *journal[TK, V]) release() {
	var kept []frozenEpoch[TK, V]
	for _, f := range j.frozen {
		if f.epoch > j.core.completed {
			kept = append(kept, f)
		}
	}
	j.frozen = kept
}
