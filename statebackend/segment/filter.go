package segment

import (
	"encoding/binary"
	"math/bits"
)

// A filter of the third format answers like a Bloom filter before, from one line of the processor's cache. A line is a checksum, which
// tells its number too, and bits; all bits of a key lie in one line. With 12 bits a key and 6 probes 1 to 2 % of absent keys get "perhaps".
const (
	lineKeyBits = 12
	lineProbes  = 6
	lineSize    = 64 // bytes
	lineBits    = (lineSize - 4) * 8
)

func filterSize(keys int) int { return (keys*lineKeyBits/lineBits + 1) * lineSize }

func buildFilter(hashes []uint64) []byte {
	f := make([]byte, filterSize(len(hashes)))
	for _, h := range hashes {
		at := lineOf(f, h)
		for _, bit := range probesOf(h) {
			f[at+int(bit.at)] |= bit.mask
		}
	}
	for at := 0; at < len(f); at += lineSize {
		binary.BigEndian.PutUint32(f[at:], lineSum(f, at))
	}
	return f
}

// filterHas says "perhaps" for a damaged line: the rows have checksums of their own.
func filterHas(f []byte, h uint64, bits *[lineProbes]probe) bool {
	at := lineOf(f, h)
	line := (*[lineSize]byte)(f[at:])
	missing := uint8(0)
	for _, bit := range bits { // all of them: where to stop nobody can foresee
		missing |= bit.mask &^ line[bit.at%lineSize]
	}
	return missing == 0 || lineSum(f, at) != binary.BigEndian.Uint32(line[:])
}

func lineOf(f []byte, h uint64) int {
	line, _ := bits.Mul64(h, uint64(len(f)/lineSize))
	return int(line) * lineSize
}

// lineSum is the checksum of the line at a place, which is another one elsewhere.
func lineSum(f []byte, at int) uint32 {
	return Checksum(f[at+4:at+lineSize]) ^ uint32(at/lineSize)*0x9e3779b1
}

// probe is a bit of a line.
type probe struct{ at, mask uint8 }

// probesOf returns the bits of a key, which are the same in every filter.
func probesOf(h uint64) (bits [lineProbes]probe) {
	h = (h ^ h>>32) * 0x9e3779b97f4a7c15 // the line is chosen by the upper bits
	at, step := uint32(h>>32), uint32(h)|1
	for i := range bits {
		bit := uint64(at) * lineBits >> 32
		bits[i] = probe{at: uint8(4 + bit/8), mask: 1 << (bit % 8)}
		at += step
	}
	return bits
}
