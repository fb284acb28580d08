package segment

import (
	"encoding/binary"
	"fmt"
)

// A Bloom filter answers "certainly not" or "perhaps". With 10 bits a key and 7 probes about 1 % of absent keys get "perhaps".
// It is a CRC32C, then the bits.
const (
	bloomBits   = 10
	bloomProbes = 7
)

func buildBloom(hashes []uint64) []byte {
	bits := uint64(max(len(hashes)*bloomBits, 64)+7) &^ 7
	f := make([]byte, 4+bits/8)
	body := f[4:]
	for _, h := range hashes {
		step := h>>33 | h<<31
		for range bloomProbes {
			bit := h % bits
			body[bit/8] |= 1 << (bit % 8)
			h += step
		}
	}
	binary.BigEndian.PutUint32(f, Checksum(body))
	return f
}

// openBloom checks a filter and returns its bits.
func openBloom(f []byte) ([]byte, error) {
	if len(f) <= 4 || Checksum(f[4:]) != binary.BigEndian.Uint32(f) {
		return nil, fmt.Errorf("%w: Bloom filter", ErrCorrupt)
	}
	return f[4:], nil
}

func bloomHas(body []byte, h uint64) bool {
	bits := uint64(len(body)) * 8
	step := h>>33 | h<<31
	for range bloomProbes {
		bit := h % bits
		if body[bit/8]&(1<<(bit%8)) == 0 {
			return false
		}
		h += step
	}
	return true
}
