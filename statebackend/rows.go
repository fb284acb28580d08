package statebackend

import (
	"hash/maphash"
	"math/bits"
	"reflect"
	"unsafe"
)

// rows is the rows of a table or pane in memory, tombstones included, by key.
type rows[K comparable, V any] struct {
	index index
	arena[K, V]
	n int
	// recent is the version that was found last: most operators read a row and then write it.
	recent    *cell[K, V]
	recentRef uint32
	// word tells that keys are integers of 64 bits, whose hash is cheaper than that of any key.
	word  bool
	seed  maphash.Seed
	salts [2]uint64
	// fetched keeps the compiler from leaving out loads.
	fetched uint32
	// place is where the last sample began, in parts of 2^32.
	place uint32
}

func newRows[K comparable, V any]() rows[K, V] {
	r := rows[K, V]{index: newIndex(), seed: maphash.MakeSeed()}
	switch reflect.TypeFor[K]().Kind() {
	case reflect.Int, reflect.Uint, reflect.Int64, reflect.Uint64:
		r.word = unsafe.Sizeof(*new(K)) == 8
		r.salts = [2]uint64{maphash.Comparable(r.seed, uint64(1)), maphash.Comparable(r.seed, uint64(2))}
	default:
	}
	return r
}

func (r *rows[K, V]) hash(k K) uint32 {
	if r.word {
		// With the key in both factors, keys that follow each other do not come to places that do.
		word := *(*uint64)(unsafe.Pointer(&k))
		hi, lo := bits.Mul64(word^r.salts[0], bits.RotateLeft64(word, 32)^r.salts[1])
		return uint32((hi ^ lo) >> 32)
	}
	return uint32(maphash.Comparable(r.seed, k) >> 32)
}

// fetchAtOnce is how many loads are under way at a time: about as many as a processor keeps track of.
const fetchAtOnce = 16

func (r *rows[K, V]) len() int { return r.n }

// find returns the current version of a row, nil when there is none.
func (r *rows[K, V]) find(k K) (uint32, *cell[K, V]) {
	if v := r.recent; v != nil && v.key == k {
		return r.recentRef, v
	}
	hash := r.hash(k)
	slots := r.index.slots(hash)
	mask := uint32(len(slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		slot := slots[i]
		if slot == 0 {
			return 0, nil
		}
		if uint32(slot>>32) != hash {
			continue
		}
		ref := uint32(slot) - 1
		if v := r.at(ref); v.key == k {
			r.recent, r.recentRef = v, ref
			return ref, v
		}
	}
}

// cachedBytes is the size of rows that a processor has in its caches anyway.
const cachedBytes = 4 << 20

// large reports whether rows take long to be loaded.
func (r *rows[K, V]) large() bool { return uintptr(r.n)*(unsafe.Sizeof(cell[K, V]{})+12) > cachedBytes }

// fetch makes the processor load what find needs for keys that it will soon be called for. Of a table larger than its caches each of
// the two loads waits for memory; here those of many keys wait at once. It appends the places of keys that have no row to absent.
func (r *rows[K, V]) fetch(keys []K, absent []int) []int {
	var found [fetchAtOnce]struct{ hash, slot uint32 }
	for from := 0; from < len(keys); from += fetchAtOnce {
		some := keys[from:min(from+fetchAtOnce, len(keys))]
		for i, k := range some {
			hash := r.hash(k)
			slots := r.index.slots(hash)
			found[i].hash, found[i].slot = hash, uint32(slots[hash&uint32(len(slots)-1)])
		}
		sum := uint32(0)
		for i := range some {
			hash, first := found[i].hash, found[i].slot
			slots := r.index.slots(hash)
			mask := uint32(len(slots) - 1)
			there := false
			for at := hash & mask; first != 0; at = (at + 1) & mask {
				slot := slots[at]
				if uint32(slot>>32) == hash {
					sum += r.at(uint32(slot) - 1).epoch
					there = true
				}
				if slot == 0 || there {
					break
				}
			}
			if !there {
				absent = append(absent, from+i)
			}
		}
		r.fetched += sum
	}
	return absent
}

// has reports whether there is a row.
func (r *rows[K, V]) has(k K) bool {
	_, v := r.find(k)
	return v != nil
}

// add makes the first version of a row that there is not.
func (r *rows[K, V]) add(k K, released uint64) (uint32, *cell[K, V]) {
	ref, v := r.alloc(released)
	v.key, v.current = k, true
	r.index.insert(r.hash(k), ref)
	r.n++
	r.recent, r.recentRef = v, ref
	return ref, v
}

// succeed makes a version, still without a value, that takes the place of another one.
func (r *rows[K, V]) succeed(old uint32, v *cell[K, V], released uint64) (uint32, *cell[K, V]) {
	ref, next := r.alloc(released)
	next.key, next.born, next.current = v.key, v.born, true
	r.index.replace(r.hash(v.key), old, ref)
	r.retire(old, v, released)
	r.recent, r.recentRef = next, ref
	return ref, next
}

// removeAll takes out rows, each once, the loads for many of them at the same time.
func (r *rows[K, V]) removeAll(refs []uint32, released uint64) {
	var hashes [fetchAtOnce]uint32
	for len(refs) > 0 {
		some := refs[:min(fetchAtOnce, len(refs))]
		refs = refs[len(some):]
		sum := uint32(0)
		for i, ref := range some {
			hashes[i] = r.hash(r.at(ref).key)
			slots := r.index.slots(hashes[i])
			sum += uint32(slots[hashes[i]&uint32(len(slots)-1)])
		}
		r.fetched += sum
		for i, ref := range some {
			r.index.remove(hashes[i], ref)
			r.retire(ref, r.at(ref), released)
		}
		r.n -= len(some)
	}
	r.recent = nil
}

// remove takes out a row. Snapshots may go on referring to its version.
func (r *rows[K, V]) remove(ref uint32, v *cell[K, V], released uint64) {
	r.index.remove(r.hash(v.key), ref)
	r.n--
	r.recent = nil
	r.retire(ref, v, released)
}

// drop takes out a row to whose version nothing refers.
func (r *rows[K, V]) drop(ref uint32, v *cell[K, V]) {
	r.index.remove(r.hash(v.key), ref)
	r.n--
	r.recent = nil
	r.free(ref)
}

// each calls f for every row until it returns false. f may remove rows.
func (r *rows[K, V]) each(f func(ref uint32, v *cell[K, V]) bool) {
	for number, h := range r.heads {
		if r.chunks[number] == nil {
			continue
		}
		for i := range h.fresh {
			ref := uint32(number)<<chunkBits | i
			if !r.holds(ref) {
				break // f has removed the last row of the chunk
			}
			if v := r.at(ref); v.current && !f(ref, v) {
				return
			}
		}
	}
}

// sample calls f for rows, which it may remove, until it returns false, or visits are made. Samples begin at places that are spread
// evenly, wherever rows are added meanwhile.
func (r *rows[K, V]) sample(visits int, f func(ref uint32, v *cell[K, V]) bool) {
	const (
		empty  = 4          // looks that cost as much as a visit
		golden = 0x9e3779b9 // of 2^32: the multiples of it are spread as evenly as can be
	)
	total := uint64(len(r.chunks)) << chunkBits
	r.place += golden
	next := uint64(r.place) * total >> 32
	for looks := min(visits*empty, int(total)); looks > 0 && visits > 0; looks-- {
		if next >= total {
			next = 0
		}
		ref := uint32(next)
		if !r.holds(ref) || ref&(chunkSize-1) >= r.heads[ref>>chunkBits].fresh {
			next = uint64(ref>>chunkBits+1) << chunkBits
			continue
		}
		next++
		v := r.at(ref)
		if !v.current {
			continue
		}
		if visits--; !f(ref, v) {
			return
		}
	}
}
