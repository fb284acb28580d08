package statebackend

// index finds a version by the hash of its key. It is open addressing in parts of bounded size: growing splits one part, so that no
// record pays for moving them all. It holds no pointers but to its parts, so that the collector has nothing to follow.
type index struct {
	// directory has the slots of the part that is responsible for a hash, by the hash's first bits; neighbours may be the same part. A
	// slot is the hash in its upper half and the version's number plus 1 in the lower one, or 0.
	directory [][]uint64
	parts     []*indexPart
	shift     uint8 // of a hash to its place in the directory
}

type indexPart struct {
	used  int
	depth uint8 // number of first bits that all of its hashes have in common
}

const errUnequalKey = "statebackend: a key is not where its hash says; keys must be equal to themselves, which floats that are no number are not"

const (
	leastPart = 8
	mostPart  = 1 << 10
	// mostDepth leaves enough of a hash to spread versions over the slots of a part.
	mostDepth = 22
)

func newIndex() index {
	return index{directory: [][]uint64{make([]uint64, leastPart)}, parts: []*indexPart{{}}, shift: 32}
}

func slotOf(hash, ref uint32) uint64 { return uint64(hash)<<32 | uint64(ref+1) }

// slots returns the part of a hash.
func (x *index) slots(hash uint32) []uint64 { return x.directory[hash>>x.shift] }

// insert adds a version that is not in the index.
func (x *index) insert(hash, ref uint32) {
	at := hash >> x.shift
	for part := x.parts[at]; (part.used+1)*4 > len(x.directory[at])*3; part = x.parts[at] {
		x.grow(at)
		at = hash >> x.shift
	}
	x.parts[at].used++
	put(x.directory[at], slotOf(hash, ref))
}

func put(slots []uint64, slot uint64) {
	mask := uint32(len(slots) - 1)
	i := uint32(slot>>32) & mask
	for slots[i] != 0 {
		i = (i + 1) & mask
	}
	slots[i] = slot
}

// find returns the place of a version that is in the index.
func (x *index) find(hash, ref uint32) (slots []uint64, at uint32) {
	slots = x.slots(hash)
	mask := uint32(len(slots) - 1)
	slot := slotOf(hash, ref)
	for at = hash & mask; slots[at] != slot; at = (at + 1) & mask {
		if slots[at] == 0 {
			panic(errUnequalKey)
		}
	}
	return slots, at
}

// replace makes a version the successor of another with the same key.
func (x *index) replace(hash, ref, by uint32) {
	slots, at := x.find(hash, ref)
	slots[at] = slotOf(hash, by)
}

// remove takes out a version. What follows moves up, so that there are no marks of what was removed.
func (x *index) remove(hash, ref uint32) {
	slots, hole := x.find(hash, ref)
	mask := uint32(len(slots) - 1)
	for i := (hole + 1) & mask; slots[i] != 0; i = (i + 1) & mask {
		if home := uint32(slots[i]>>32) & mask; (i-home)&mask >= (i-hole)&mask {
			slots[hole] = slots[i]
			hole = i
		}
	}
	slots[hole] = 0
	x.parts[hash>>x.shift].used--
}

// grow makes room in the part at a place of the directory: it becomes larger, or two.
func (x *index) grow(at uint32) {
	old, part := x.directory[at], x.parts[at]
	if len(old) < mostPart || part.depth == mostDepth {
		larger := make([]uint64, 2*len(old))
		for _, slot := range old {
			if slot != 0 {
				put(larger, slot)
			}
		}
		x.share(at, part, larger)
		return
	}
	if 32-x.shift == part.depth {
		x.double()
		at *= 2
	}
	// The part becomes that of the hashes with a 0 in the next bit.
	low, high := make([]uint64, len(old)), make([]uint64, len(old))
	other := &indexPart{depth: part.depth + 1}
	part.depth, part.used = part.depth+1, 0
	for _, slot := range old {
		switch {
		case slot == 0:
		case uint32(slot>>32)>>(32-part.depth)&1 == 0:
			part.used++
			put(low, slot)
		default:
			other.used++
			put(high, slot)
		}
	}
	span := uint32(1) << (32 - x.shift - part.depth)
	first := at &^ (2*span - 1)
	x.share(first, part, low)
	x.share(first+span, other, high)
}

// share enters a part wherever it is responsible.
func (x *index) share(at uint32, part *indexPart, slots []uint64) {
	span := uint32(1) << (32 - x.shift - part.depth)
	first := at &^ (span - 1)
	for i := first; i < first+span; i++ {
		x.directory[i], x.parts[i] = slots, part
	}
}

// double gives the directory one more bit.
func (x *index) double() {
	directory, parts := make([][]uint64, 2*len(x.directory)), make([]*indexPart, 2*len(x.parts))
	for i := range directory {
		directory[i], parts[i] = x.directory[i/2], x.parts[i/2]
	}
	x.directory, x.parts = directory, parts
	x.shift--
}
