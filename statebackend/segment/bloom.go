package segment

import (
	"encoding/binary"
	"fmt"
)

// A Bloom filter of the first two formats answers "certainly not" or "perhaps". It is divided into blocks, each a CRC32C and bits; all bits of a key lie in one
// block, so that opening a filter reads nothing of it and a question reads one block. With 10 bits a key and 7 probes about 1 % of
// absent keys get "perhaps".
const (
	bloomBits   = 10
	bloomProbes = 7
	bloomBlock  = 512 // bytes
	bloomBody   = (bloomBlock - 4) * 8
)

func checkBloom(f []byte) error {
	if len(f) == 0 || len(f)%bloomBlock != 0 {
		return fmt.Errorf("%w: Bloom filter of %d bytes", ErrCorrupt, len(f))
	}
	return nil
}

// bloomHas says "perhaps" for a damaged block: the rows have checksums of their own.
func bloomHas(f []byte, h uint64) bool {
	block := bloomFind(f, h)
	has := true
	bloomProbe(block[4:], h, func(b *byte, bit byte) bool {
		has = *b&bit != 0
		return has
	})
	return has || Checksum(block[4:]) != binary.BigEndian.Uint32(block)
}

// bloomFind returns the block of a key.
func bloomFind(f []byte, h uint64) []byte {
	at := h % uint64(len(f)/bloomBlock) * bloomBlock
	return f[at : at+bloomBlock]
}

// bloomProbe calls fn for the bits of a key until it returns false.
func bloomProbe(body []byte, h uint64, fn func(b *byte, bit byte) bool) {
	// The block was chosen by the remainder; other bits choose within it.
	h = (h>>32 | h<<32) * 0x9e3779b97f4a7c15
	at, step := h>>32, h&0xffffffff|1
	for range bloomProbes {
		bit := at % bloomBody
		if !fn(&body[bit/8], 1<<(bit%8)) {
			return
		}
		at += step
	}
}
