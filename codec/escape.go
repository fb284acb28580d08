package codec

import (
	"bytes"
	"fmt"
	"strings"
)

// An escaped string of bytes ends itself and sorts as the bytes do: each 0x00 becomes 0x00 0xFF, and 0x00 0x01 follows the last byte.
const (
	escapeByte     = 0x00
	escapedZero    = 0xFF
	escapeEnd      = 0x01
	terminatorSize = 2
)

// AppendEscaped appends b in a form that ends itself and keeps the order of byte strings.
func AppendEscaped(dst, b []byte) []byte {
	for {
		i := bytes.IndexByte(b, escapeByte)
		if i < 0 {
			dst = append(dst, b...)
			return append(dst, escapeByte, escapeEnd)
		}
		dst = append(dst, b[:i]...)
		dst = append(dst, escapeByte, escapedZero)
		b = b[i+1:]
	}
}

func appendEscapedString(dst []byte, s string) []byte {
	for {
		i := strings.IndexByte(s, escapeByte)
		if i < 0 {
			dst = append(dst, s...)
			return append(dst, escapeByte, escapeEnd)
		}
		dst = append(dst, s[:i]...)
		dst = append(dst, escapeByte, escapedZero)
		s = s[i+1:]
	}
}

// EscapedLen returns the length of the escaped bytes at the start of src, terminator included.
func EscapedLen(src []byte) (int, error) {
	for i := 0; ; {
		j := bytes.IndexByte(src[i:], escapeByte)
		if j < 0 || i+j+1 >= len(src) {
			return 0, ErrTruncated
		}
		i += j + terminatorSize
		switch src[i-1] {
		case escapeEnd:
			return i, nil
		case escapedZero:
		default:
			return 0, fmt.Errorf("%w: escape %#x", ErrInvalid, src[i-1])
		}
	}
}

// CutEscaped appends the unescaped form of the escaped bytes at the start of src to dst and returns it with what follows them.
func CutEscaped(dst, src []byte) (b, rest []byte, err error) {
	n, err := EscapedLen(src)
	if err != nil {
		return nil, nil, err
	}
	body, rest := src[:n-terminatorSize], src[n:]
	for {
		i := bytes.IndexByte(body, escapeByte)
		if i < 0 {
			return append(dst, body...), rest, nil
		}
		dst = append(dst, body[:i+1]...)
		body = body[i+terminatorSize:]
	}
}
