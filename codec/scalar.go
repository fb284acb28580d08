package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unsafe"
)

// The codecs of this file serve every type of a kind, named ones too. A conversion through unsafe.Pointer is the only way to reach
// the underlying value of a type parameter without allocating; [For] and [ForKey] pair each codec with types of its kind only.

// Errors of decoders, to be tested with errors.Is.
var (
	// ErrTruncated: the encoding ends too early.
	ErrTruncated = errors.New("encoding is truncated")
	// ErrTrailing: the encoding has more bytes than the value.
	ErrTrailing = errors.New("encoding has trailing bytes")
	// ErrInvalid: no value has this encoding.
	ErrInvalid = errors.New("encoding is invalid")
)

type boolCodec[T any] struct{}

func (boolCodec[T]) ID() string          { return "bool" }
func (boolCodec[T]) Fingerprint() uint64 { return 0 }

func (boolCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return appendBool(dst, *(*bool)(unsafe.Pointer(&v))), nil
}

func (boolCodec[T]) Decode(src []byte) (v T, err error) {
	b, rest, err := cutBool(src)
	if err == nil && len(rest) > 0 {
		err = ErrTrailing
	}
	*(*bool)(unsafe.Pointer(&v)) = b
	return v, err
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func cutBool(src []byte) (b bool, rest []byte, err error) {
	switch {
	case len(src) == 0:
		return false, nil, ErrTruncated
	case src[0] > 1:
		return false, nil, fmt.Errorf("%w: byte %d for a bool", ErrInvalid, src[0])
	}
	return src[0] == 1, src[1:], nil
}

// intCodec is a zigzag varint.
type intCodec[T any] struct{ bits int }

func (c intCodec[T]) ID() string        { return "int" + strconv.Itoa(c.bits) }
func (intCodec[T]) Fingerprint() uint64 { return 0 }

func (c intCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.AppendVarint(dst, loadInt(unsafe.Pointer(&v), c.bits)), nil
}

func (c intCodec[T]) Decode(src []byte) (v T, err error) {
	n, size := binary.Varint(src)
	if err := checkVarint(src, size); err != nil {
		return v, err
	}
	if !storeInt(unsafe.Pointer(&v), c.bits, n) {
		return v, fmt.Errorf("%w: %d does not fit in %d bits", ErrInvalid, n, c.bits)
	}
	return v, nil
}

func checkVarint(src []byte, size int) error {
	switch {
	case size == 0:
		return ErrTruncated
	case size < 0:
		return fmt.Errorf("%w: integer of more than 64 bits", ErrInvalid)
	case size < len(src):
		return ErrTrailing
	}
	return nil
}

func loadInt(p unsafe.Pointer, bits int) int64 {
	switch bits {
	case 8:
		return int64(*(*int8)(p))
	case 16:
		return int64(*(*int16)(p))
	case 32:
		return int64(*(*int32)(p))
	default:
		return *(*int64)(p)
	}
}

func storeInt(p unsafe.Pointer, bits int, n int64) bool {
	switch bits {
	case 8:
		*(*int8)(p) = int8(n)
		return int64(int8(n)) == n
	case 16:
		*(*int16)(p) = int16(n)
		return int64(int16(n)) == n
	case 32:
		*(*int32)(p) = int32(n)
		return int64(int32(n)) == n
	default:
		*(*int64)(p) = n
		return true
	}
}

// uintCodec is a varint.
type uintCodec[T any] struct{ bits int }

func (c uintCodec[T]) ID() string        { return "uint" + strconv.Itoa(c.bits) }
func (uintCodec[T]) Fingerprint() uint64 { return 0 }

func (c uintCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.AppendUvarint(dst, loadUint(unsafe.Pointer(&v), c.bits)), nil
}

func (c uintCodec[T]) Decode(src []byte) (v T, err error) {
	n, size := binary.Uvarint(src)
	if err := checkVarint(src, size); err != nil {
		return v, err
	}
	if !storeUint(unsafe.Pointer(&v), c.bits, n) {
		return v, fmt.Errorf("%w: %d does not fit in %d bits", ErrInvalid, n, c.bits)
	}
	return v, nil
}

func loadUint(p unsafe.Pointer, bits int) uint64 {
	switch bits {
	case 8:
		return uint64(*(*uint8)(p))
	case 16:
		return uint64(*(*uint16)(p))
	case 32:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

func storeUint(p unsafe.Pointer, bits int, n uint64) bool {
	switch bits {
	case 8:
		*(*uint8)(p) = uint8(n)
		return uint64(uint8(n)) == n
	case 16:
		*(*uint16)(p) = uint16(n)
		return uint64(uint16(n)) == n
	case 32:
		*(*uint32)(p) = uint32(n)
		return uint64(uint32(n)) == n
	default:
		*(*uint64)(p) = n
		return true
	}
}

type float64Codec[T any] struct{}

func (float64Codec[T]) ID() string          { return "float64" }
func (float64Codec[T]) Fingerprint() uint64 { return 0 }

func (float64Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(*(*float64)(unsafe.Pointer(&v)))), nil
}

func (float64Codec[T]) Decode(src []byte) (v T, err error) {
	if err := checkSize(src, 8); err != nil {
		return v, err
	}
	*(*float64)(unsafe.Pointer(&v)) = math.Float64frombits(binary.BigEndian.Uint64(src))
	return v, nil
}

type float32Codec[T any] struct{}

func (float32Codec[T]) ID() string          { return "float32" }
func (float32Codec[T]) Fingerprint() uint64 { return 0 }

func (float32Codec[T]) Append(dst []byte, v T) ([]byte, error) {
	return binary.BigEndian.AppendUint32(dst, math.Float32bits(*(*float32)(unsafe.Pointer(&v)))), nil
}

func (float32Codec[T]) Decode(src []byte) (v T, err error) {
	if err := checkSize(src, 4); err != nil {
		return v, err
	}
	*(*float32)(unsafe.Pointer(&v)) = math.Float32frombits(binary.BigEndian.Uint32(src))
	return v, nil
}

func checkSize(src []byte, size int) error {
	switch {
	case len(src) < size:
		return ErrTruncated
	case len(src) > size:
		return ErrTrailing
	}
	return nil
}

// stringCodec is the bytes as they are.
type stringCodec[T any] struct{}

func (stringCodec[T]) ID() string          { return "string" }
func (stringCodec[T]) Fingerprint() uint64 { return 0 }

func (stringCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	return append(dst, *(*string)(unsafe.Pointer(&v))...), nil
}

func (stringCodec[T]) Decode(src []byte) (v T, err error) {
	*(*string)(unsafe.Pointer(&v)) = string(src)
	return v, nil
}

// bytesCodec is one byte, 0 for nil and 1 otherwise, followed by the bytes: nil and empty stay apart.
type bytesCodec[T any] struct{}

func (bytesCodec[T]) ID() string          { return "bytes" }
func (bytesCodec[T]) Fingerprint() uint64 { return 0 }

func (bytesCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b := *(*[]byte)(unsafe.Pointer(&v))
	if b == nil {
		return append(dst, 0), nil
	}
	return append(append(dst, 1), b...), nil
}

func (bytesCodec[T]) Decode(src []byte) (v T, err error) {
	present, rest, err := cutPresence(src)
	if err != nil || !present {
		return v, err
	}
	*(*[]byte)(unsafe.Pointer(&v)) = append(make([]byte, 0, len(rest)), rest...)
	return v, nil
}

// cutPresence reads the byte that tells a nil from a value.
func cutPresence(src []byte) (present bool, rest []byte, err error) {
	present, rest, err = cutBool(src)
	if err == nil && !present && len(rest) > 0 {
		err = ErrTrailing
	}
	return present, rest, err
}
