package segment

import (
	"encoding/binary"
	"fmt"
)

const magic = "weirseg"

// header says what a segment holds. It is the magic, one byte of format version, number of rows, number of drops and the drops
// (varints), from the third version on the size of the filter (varint), then a CRC32C of all that.
type header struct {
	version byte
	entries uint64
	drops   []Drop
	filter  uint64 // bytes; 0 without one
}

func (h header) bounded() bool { return h.version >= BoundedFormat }

func (h header) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, h.version)
	dst = binary.AppendUvarint(dst, h.entries)
	dst = binary.AppendUvarint(dst, uint64(len(h.drops)))
	for _, d := range h.drops {
		dst = binary.AppendUvarint(dst, uint64(d.State))
		dst = binary.AppendVarint(dst, d.Namespace)
	}
	if h.bounded() {
		dst = binary.AppendUvarint(dst, h.filter)
	}
	return binary.BigEndian.AppendUint32(dst, Checksum(dst[start:]))
}

// cutHeader reads the header at the start of src.
func cutHeader(src []byte) (h header, rest []byte, err error) {
	if len(src) <= len(magic) || string(src[:len(magic)]) != magic {
		return h, nil, fmt.Errorf("%w: no segment header", ErrCorrupt)
	}
	h.version = src[len(magic)]
	if !Readable(uint32(h.version)) {
		return h, nil, fmt.Errorf("%w: it says that it has format %d, this version reads formats %d to %d", ErrCorrupt, h.version, FormatVersion, BoundedFormat)
	}
	rest = src[len(magic)+1:]
	ok := true
	cut := func() (n uint64) {
		var size int
		if n, size = binary.Uvarint(rest); size <= 0 {
			ok, rest = false, nil
			return 0
		}
		rest = rest[size:]
		return n
	}
	h.entries = cut()
	for n := cut(); ok && n > 0; n-- {
		state := cut()
		u := cut()
		h.drops = append(h.drops, Drop{State: uint16(state), Namespace: int64(u>>1) ^ -int64(u&1)})
	}
	if h.bounded() {
		h.filter = cut()
	}
	body := len(src) - len(rest)
	if !ok || len(rest) < 4 || binary.BigEndian.Uint32(rest) != Checksum(src[:body]) {
		return h, nil, fmt.Errorf("%w: header", ErrCorrupt)
	}
	return h, rest[4:], nil
}
