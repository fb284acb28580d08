package statebackend

import "unsafe"

// entry is one version of a row of a map: what the row was at the end of an epoch.
type entry[TK comparable, V any] struct {
	key   TK
	value V
	// epoch is the one in which the version was made; 0 for a row as it was restored.
	epoch uint64
	// born is the epoch since which the key has existed or left a tombstone: snapshots of earlier epochs do not hold it. 0 when
	// restored segments may.
	born uint64
	// pos is the place in the dirty set while the version's epoch is the current one.
	pos     int32
	deleted bool
}

// entryOverheadOf is what an entry costs besides the encoding of its row: the entry, and its place in the map, which is three quarters
// full on average.
func entryOverheadOf[TK comparable, V any]() int64 {
	var k TK
	return int64(unsafe.Sizeof(entry[TK, V]{})) + (int64(unsafe.Sizeof(k))+9)*4/3
}

// dirtySet is the versions made in one epoch. It grows in chunks, so that no record pays for moving a large array.
type dirtySet[E any] struct {
	chunks [][]E
}

const dirtyChunk = 1 << 10

// add appends v and returns its place.
func (d *dirtySet[E]) add(v E) int {
	n := len(d.chunks)
	if n == 0 || len(d.chunks[n-1]) == dirtyChunk {
		size := dirtyChunk
		if n == 0 {
			size = 16 // most states change little
		}
		d.chunks = append(d.chunks, make([]E, 0, size))
		n++
	}
	d.chunks[n-1] = append(d.chunks[n-1], v)
	return (n-1)*dirtyChunk + len(d.chunks[n-1]) - 1
}

// remove takes out the version at a place; the last one moves there and is returned for its place to be set.
func (d *dirtySet[E]) remove(pos int) (moved E) {
	n := len(d.chunks) - 1
	last := len(d.chunks[n]) - 1
	moved = d.chunks[n][last]
	d.chunks[pos/dirtyChunk][pos%dirtyChunk] = moved
	clear(d.chunks[n][last:])
	d.chunks[n] = d.chunks[n][:last]
	if last == 0 {
		d.chunks = d.chunks[:n]
	}
	return moved
}

func (d *dirtySet[E]) len() int {
	n := len(d.chunks)
	if n == 0 {
		return 0
	}
	return (n-1)*dirtyChunk + len(d.chunks[n-1])
}
