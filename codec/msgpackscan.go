package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// maxDepth bounds the nesting of a MessagePack value.
const maxDepth = 1000

// scan checks that src is exactly one MessagePack value in which every length is covered by bytes that are there, and that its numbers
// fit the type n. The decoder allocates by the lengths it reads, so a damaged one could ask for all memory; and it cuts numbers off,
// turns integers into floats, and takes text for bytes. A nil n stands for any type.
func scan(src []byte, n *node) error {
	rest, err := scanValue(src, n, 0)
	if err == nil && len(rest) > 0 {
		err = ErrTrailing
	}
	return err
}

// scanValue returns what follows the value at the start of src.
func scanValue(src []byte, n *node, depth int) (rest []byte, err error) {
	if len(src) == 0 {
		return nil, ErrTruncated
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: nested more than %d deep", ErrInvalid, maxDepth)
	}
	for n != nil && n.kind == pointerNode {
		n = n.elem
	}
	code, rest := src[0], src[1:]
	switch {
	case code <= 0x7f || code >= 0xe0: // small integers
		return rest, n.takesInt(int64(int8(code)))
	case code <= 0x8f:
		return scanMap(rest, uint64(code&0x0f), n, depth)
	case code <= 0x9f:
		return scanList(rest, uint64(code&0x0f), n, depth)
	case code <= 0xbf: // short strings
		rest, err = skip(rest, uint64(code&0x1f))
		return rest, n.takesText(err)
	}
	switch code {
	case 0xc0, 0xc2, 0xc3: // nil, false, true
		return rest, nil
	case 0xc4, 0xc5, 0xc6: // bytes with a length of 1, 2 or 4 bytes
		rest, err = skipCounted(rest, 1<<(code-0xc4), 0)
		if err == nil && n != nil && n.kind == stringNode {
			err = n.mismatch("bytes")
		}
		return rest, err
	case 0xd9, 0xda, 0xdb: // text
		rest, err = skipCounted(rest, 1<<(code-0xd9), 0)
		return rest, n.takesText(err)
	case 0xc7, 0xc8, 0xc9: // extensions have a type byte
		return skipCounted(rest, 1<<(code-0xc7), 1)
	case 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2, 0xd3:
		return scanInt(code, rest, n)
	case 0xca:
		return skip(rest, 4)
	case 0xcb:
		return skip(rest, 8)
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // extensions of fixed size
		return skip(rest, 1+1<<(code-0xd4))
	case 0xdc, 0xdd, 0xde, 0xdf:
		count, rest, err := cutLength(rest, 2<<(code&1))
		if err != nil {
			return nil, err
		}
		if code >= 0xde {
			return scanMap(rest, count, n, depth)
		}
		return scanList(rest, count, n, depth)
	default:
		return nil, fmt.Errorf("%w: MessagePack code %#x", ErrInvalid, code)
	}
}

func scanInt(code byte, src []byte, n *node) (rest []byte, err error) {
	width := 1 << (code & 3)
	if len(src) < width {
		return nil, ErrTruncated
	}
	var u uint64
	for _, b := range src[:width] {
		u = u<<8 | uint64(b)
	}
	rest = src[width:]
	switch {
	case code >= 0xd0:
		unused := 64 - 8*width
		return rest, n.takesInt(int64(u<<unused) >> unused)
	case u > math.MaxInt64:
		if n != nil && (n.kind != uintNode || n.bits < 64) && n.kind != opaque {
			return nil, n.mismatch(fmt.Sprint(u))
		}
		return rest, nil
	}
	return rest, n.takesInt(int64(u))
}

// takesInt returns an error unless a value of the type can be v. What is no number at all is for the decoder to refuse.
func (n *node) takesInt(v int64) error {
	if n == nil {
		return nil
	}
	switch n.kind {
	case intNode:
		unused := 64 - n.bits
		if v<<unused>>unused != v {
			return n.mismatch(fmt.Sprint(v))
		}
	case uintNode:
		if v < 0 || n.bits < 64 && v>>n.bits != 0 {
			return n.mismatch(fmt.Sprint(v))
		}
	case floatNode:
		return n.mismatch("an integer")
	}
	return nil
}

func (n *node) takesText(err error) error {
	if err == nil && n != nil && n.kind == bytesNode {
		err = n.mismatch("text")
	}
	return err
}

func (n *node) mismatch(what string) error {
	return fmt.Errorf("%w: %s does not fit the type %s", ErrInvalid, what, n.text)
}

func scanList(src []byte, count uint64, n *node, depth int) (rest []byte, err error) {
	if count > uint64(len(src)) {
		return nil, ErrTruncated
	}
	var elem *node
	if n != nil {
		if n.kind == structNode {
			return nil, n.mismatch("a list")
		}
		elem = n.elem
	}
	for range count {
		if src, err = scanValue(src, elem, depth+1); err != nil {
			return nil, err
		}
	}
	return src, nil
}

func scanMap(src []byte, count uint64, n *node, depth int) (rest []byte, err error) {
	if 2*count > uint64(len(src)) {
		return nil, ErrTruncated
	}
	var key, elem *node
	if n != nil {
		key, elem = n.key, n.elem
	}
	for range count {
		if rest, err = scanValue(src, key, depth+1); err != nil {
			return nil, err
		}
		if n != nil && n.kind == structNode {
			elem = n.fields[string(text(src[:len(src)-len(rest)]))]
		}
		if src, err = scanValue(rest, elem, depth+1); err != nil {
			return nil, err
		}
	}
	return src, nil
}

// text returns the content of a string value, nothing for another value.
func text(value []byte) []byte {
	switch code := value[0]; {
	case code >= 0xa0 && code <= 0xbf:
		return value[1:]
	case code >= 0xc4 && code <= 0xc6:
		return value[1+1<<(code-0xc4):]
	case code >= 0xd9 && code <= 0xdb:
		return value[1+1<<(code-0xd9):]
	}
	return nil
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
