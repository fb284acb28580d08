package statebackend

import "unsafe"

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
	chunks chunks[K, V]
	heads  []chunkHead // one per chunk
	// open has the chunks with free versions, each once, some of which may have been given up; empty numbers those that have been, and
	// are to be made anew.
	open, empty []uint32
	// spare is the chunk that was empty last. It is kept, since rows that come and go may need it at once.
	spare uint32
	// retired are the versions that are current no more, in the order in which that happened, from the next one on.
	retired []uint32
	next    int
}

const (
	chunkBits = 8
	chunkSize = 1 << chunkBits // at most
)

// chunks are the first versions of chunks, or nil where there is none. The first chunks are short: many panes have few rows.
type chunks[K comparable, V any] []*cell[K, V]

type chunkHead struct {
	fresh uint32 // versions from here on were never used
	free  uint32 // the first of the free ones before, plus 1
	live  uint32
}

// sizeOf returns how many versions a chunk has.
func sizeOf(number uint32) uint32 { return min(chunkSize, uint32(2)<<min(2*number, chunkBits)) }

// at returns a version that is not free.
func (c chunks[K, V]) at(ref uint32) *cell[K, V] {
	first := c[ref>>chunkBits]
	return (*cell[K, V])(unsafe.Add(unsafe.Pointer(first), uintptr(ref&(chunkSize-1))*unsafe.Sizeof(*first)))
}

func (a *arena[K, V]) at(ref uint32) *cell[K, V] { return a.chunks.at(ref) }

// holds reports whether there is a version with a number, which may be another one than there was once.
func (a *arena[K, V]) holds(ref uint32) bool { return a.chunks[ref>>chunkBits] != nil }

// alloc returns a version that is zero. Snapshots refer to versions after epoch released only.
func (a *arena[K, V]) alloc(released uint64) (uint32, *cell[K, V]) {
	a.collect(released, 2)
	n := len(a.open) - 1
	for ; n >= 0 && a.chunks[a.open[n]] == nil; n-- {
		a.empty = append(a.empty, a.open[n])
		a.open = a.open[:n]
	}
	if n < 0 {
		a.addChunk()
		n = 0
	}
	number := a.open[n]
	h := &a.heads[number]
	i := h.free - 1
	if h.free == 0 {
		i = h.fresh
		h.fresh++
	}
	ref := number<<chunkBits | i
	v := a.at(ref)
	if h.free > 0 {
		h.free = v.pos
	}
	if h.live++; h.live == sizeOf(number) {
		a.open = a.open[:n]
	}
	v.pos = 0
	return ref, v
}

func (a *arena[K, V]) addChunk() {
	number := uint32(len(a.chunks))
	if n := len(a.empty) - 1; n >= 0 {
		number = a.empty[n]
		a.empty = a.empty[:n]
	} else {
		if number == 1<<(32-chunkBits)-1 { // its last version would have no place in an index
			panic("statebackend: more versions of rows in a table than can be numbered")
		}
		a.chunks, a.heads = append(a.chunks, nil), append(a.heads, chunkHead{})
	}
	a.chunks[number] = unsafe.SliceData(make([]cell[K, V], sizeOf(number)))
	a.heads[number] = chunkHead{}
	a.open = append(a.open, number)
}

// free gives up a version that nothing refers to.
func (a *arena[K, V]) free(ref uint32) {
	number, i := ref>>chunkBits, ref&(chunkSize-1)
	h := &a.heads[number]
	if h.live == sizeOf(number) {
		a.open = append(a.open, number)
	}
	*a.at(ref) = cell[K, V]{pos: h.free}
	h.free = i + 1
	if h.live--; h.live > 0 {
		return
	}
	if other := a.spare; other != number && a.chunks[other] != nil && a.heads[other].live == 0 {
		a.chunks[number] = nil
		return
	}
	a.spare = number
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
