package codec

import (
	"encoding/binary"
	"fmt"
)

// maxDepth bounds the nesting of a MessagePack value.
const maxDepth = 1000

// scan checks that src is exactly one MessagePack value in which every length is covered by bytes that are there. The decoder
// allocates by the lengths it reads, so a damaged one could ask for all memory.
func scan(src []byte) error {
	rest, err := scanValue(src, 0)
	if err == nil && len(rest) > 0 {
		err = ErrTrailing
	}
	return err
}

// scanValue returns what follows the value at the start of src.
func scanValue(src []byte, depth int) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, ErrTruncated
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: nested more than %d deep", ErrInvalid, maxDepth)
	}
	code, rest := src[0], src[1:]
	switch {
	case code <= 0x7f || code >= 0xe0: // small integers
		return rest, nil
	case code <= 0x8f:
		return scanMany(rest, 2*uint64(code&0x0f), depth)
	case code <= 0x9f:
		return scanMany(rest, uint64(code&0x0f), depth)
	case code <= 0xbf: // short strings
		return skip(rest, uint64(code&0x1f))
	}
	switch code {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return rest, nil
	case 0xc4, 0xd9: // 8-bit length
		return skipCounted(rest, 1, 0)
	case 0xc5, 0xda:
		return skipCounted(rest, 2, 0)
	case 0xc6, 0xdb:
		return skipCounted(rest, 4, 0)
	case 0xc7, 0xc8, 0xc9: // extensions have a type byte
		return skipCounted(rest, 1<<(code-0xc7), 1)
	case 0xcc, 0xd0:
		return skip(rest, 1)
	case 0xcd, 0xd1:
		return skip(rest, 2)
	case 0xca, 0xce, 0xd2:
		return skip(rest, 4)
	case 0xcb, 0xcf, 0xd3:
		return skip(rest, 8)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // extensions of fixed size
		return skip(rest, 1+1<<(code-0xd4))
	case 0xdc, 0xdd, 0xde, 0xdf:
		n, rest, err := cutLength(rest, 2<<(code&1))
		if err != nil {
			return nil, err
		}
		if code >= 0xde {
			n *= 2
		}
		return scanMany(rest, n, depth)
	default:
		return nil, fmt.Errorf("%w: MessagePack code %#x", ErrInvalid, code)
	}
}

func scanMany(src []byte, n uint64, depth int) (rest []byte, err error) {
	if n > uint64(len(src)) {
		return nil, ErrTruncated
	}
	for range n {
		if src, err = scanValue(src, depth+1); err != nil {
			return nil, err
		}
	}
	return src, nil
}

func skipCounted(src []byte, width int, more uint64) (rest []byte, err error) {
	n, rest, err := cutLength(src, width)
	if err != nil {
		return nil, err
	}
	return skip(rest, n+more)
}

func cutLength(src []byte, width int) (n uint64, rest []byte, err error) {
	if len(src) < width {
		return 0, nil, ErrTruncated
	}
	switch width {
	case 1:
		n = uint64(src[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(src))
	default:
		n = uint64(binary.BigEndian.Uint32(src))
	}
	return n, src[width:], nil
}

func skip(src []byte, n uint64) (rest []byte, err error) {
	if n > uint64(len(src)) {
		return nil, ErrTruncated
	}
	return src[n:], nil
}
