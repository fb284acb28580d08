package statebackend

// cell holds a version of a row: what it was at the end of an epoch.
type cell[K comparable, V any] struct {
	key   K
	value V
	// epoch is the one in which the version was made; 0 for a row as it was restored. Epochs are counted from the start of the task.
	epoch uint32
	// born is the epoch since which the key has existed or left a tombstone: snapshots of earlier epochs do not hold it. 0 when
	// restored segments may.
	born uint32
	// pos is the place in the dirty set while the version's epoch is the current one. Of a free version it is the next free one of the
	// chunk, plus 1.
	pos uint32
	// current tells that the version is its row's latest; others are only in snapshots that are still to be written.
	current bool
	deleted bool
	// use is 1 from when the entry is asked for until eviction passes it by, else 0, and -1 when it was read ahead for who is about to ask.
	use int8
}

// arena holds versions by number. They do not move, and when neither keys nor values have pointers the collector does not look at them.
// Frozen snapshots share the list of chunks.
type arena[K comparable, V any] struct {
	chunks []*chunk[K, V]
	// open has the chunks with free versions, each once. One that is nil was given up, to be made anew.
	open []uint32
	// retired are the versions that are current no more, in the order in which that happened, from the next one on.
	retired []uint32
	next    int
}

const (
	chunkBits = 8
	chunkSize = 1 << chunkBits
)

type chunk[K comparable, V any] struct {
	versions [chunkSize]cell[K, V]
	fresh    uint32 // versions from here on were never used
	free     uint32 // the first of the free ones before, plus 1
	live     uint32
}

// at returns a version that is not free.
func at[K comparable, V any](chunks []*chunk[K, V], ref uint32) *cell[K, V] {
	return &chunks[ref>>chunkBits].versions[ref&(chunkSize-1)]
}

func (a *arena[K, V]) at(ref uint32) *cell[K, V] { return at(a.chunks, ref) }

// holds reports whether there is a version with a number, which may be another one than there was once.
func (a *arena[K, V]) holds(ref uint32) bool { return a.chunks[ref>>chunkBits] != nil }

// alloc returns a version that is zero. Snapshots refer to versions after epoch released only.
func (a *arena[K, V]) alloc(released uint64) (uint32, *cell[K, V]) {
	a.collect(released, 2)
	n := len(a.open) - 1
	if n < 0 {
		a.open = append(a.open, uint32(len(a.chunks)))
		a.chunks = append(a.chunks, nil)
		n = 0
	}
	number := a.open[n]
	c := a.chunks[number]
	if c == nil {
		c = new(chunk[K, V])
		a.chunks[number] = c
	}
	i := c.free - 1
	if c.free > 0 {
		c.free = c.versions[i].pos
	} else {
		i = c.fresh
		c.fresh++
	}
	if c.live++; c.live == chunkSize {
		a.open = a.open[:n]
	}
	v := &c.versions[i]
	v.pos = 0
	return number<<chunkBits | i, v
}

// free gives up a version that nothing refers to.
func (a *arena[K, V]) free(ref uint32) {
	number, i := ref>>chunkBits, ref&(chunkSize-1)
	c := a.chunks[number]
	if c.live == chunkSize {
		a.open = append(a.open, number)
	}
	if c.live--; c.live == 0 && len(a.chunks) > 1 {
		a.chunks[number] = nil
		return
	}
	c.versions[i] = cell[K, V]{pos: c.free}
	c.free = i + 1
}

// retire gives up a version to which snapshots may refer.
func (a *arena[K, V]) retire(ref uint32, v *cell[K, V], released uint64) {
	v.current = false
	if uint64(v.epoch) <= released {
		a.free(ref)
		return
	}
	a.retired = append(a.retired, ref)
}

// collect frees at most limit retired versions that no snapshot refers to any more.
func (a *arena[K, V]) collect(released uint64, limit int) {
	for ; limit > 0 && a.next < len(a.retired); limit-- {
		ref := a.retired[a.next]
		if uint64(a.at(ref).epoch) > released {
			return
		}
		a.free(ref)
		if a.next++; 2*a.next >= len(a.retired) {
			a.retired = a.retired[:copy(a.retired, a.retired[a.next:])]
			a.next = 0
		}
	}
}
