package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unsafe"
)

// ForKey returns the key codec of K: a boolean, integer, string or time.Time, or an array or struct of such. Strings are their bytes;
// integers are big-endian with the sign bit flipped; a struct is its fields one after another, strings in it escaped and terminated.
// Blank fields are left out, as == leaves them out.
//
// Two time.Time keys are the same key when they are the same instant; since == also compares the location and a monotonic reading,
// a key should be made with t.UTC().Round(0). Decoded times are like that.
//
// Floats are refused because NaN is not equal to itself and 0 equals -0; pointers, interfaces and channels because they mean nothing
// in another process.
func ForKey[K comparable]() (Key[K], error) {
	t := reflect.TypeFor[K]()
	if t != reflect.TypeFor[time.Time]() {
		switch t.Kind() {
		case reflect.String:
			return stringKey[K]{}, nil
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			return intKey[K]{bits: t.Bits()}, nil
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			return uintKey[K]{bits: t.Bits()}, nil
		}
	}
	k, err := newStructKey[K](t)
	if err != nil {
		return nil, fmt.Errorf("type %s cannot be a key: %w", t, err)
	}
	return k, nil
}

type stringKey[K comparable] struct{}

func (stringKey[K]) ID() string { return "string" }

func (stringKey[K]) Append(dst []byte, k K) []byte {
	return append(dst, *(*string)(unsafe.Pointer(&k))...)
}

func (stringKey[K]) Decode(src []byte) (k K, err error) {
	*(*string)(unsafe.Pointer(&k)) = string(src)
	return k, nil
}

type intKey[K comparable] struct{ bits int }

func (c intKey[K]) ID() string { return "int" + strconv.Itoa(c.bits) }

func (c intKey[K]) Append(dst []byte, k K) []byte {
	return appendFixed(dst, uint64(loadInt(unsafe.Pointer(&k), c.bits))^1<<(c.bits-1), c.bits)
}

func (c intKey[K]) Decode(src []byte) (k K, err error) {
	if err := checkSize(src, c.bits/8); err != nil {
		return k, err
	}
	storeInt(unsafe.Pointer(&k), c.bits, signed(cutFixed(src, c.bits), c.bits))
	return k, nil
}

type uintKey[K comparable] struct{ bits int }

func (c uintKey[K]) ID() string { return "uint" + strconv.Itoa(c.bits) }

func (c uintKey[K]) Append(dst []byte, k K) []byte {
	return appendFixed(dst, loadUint(unsafe.Pointer(&k), c.bits), c.bits)
}

func (c uintKey[K]) Decode(src []byte) (k K, err error) {
	if err := checkSize(src, c.bits/8); err != nil {
		return k, err
	}
	storeUint(unsafe.Pointer(&k), c.bits, cutFixed(src, c.bits))
	return k, nil
}

// appendFixed appends the low bits of n, big-endian.
func appendFixed(dst []byte, n uint64, bits int) []byte {
	switch bits {
	case 8:
		return append(dst, byte(n))
	case 16:
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	case 32:
		return binary.BigEndian.AppendUint32(dst, uint32(n))
	default:
		return binary.BigEndian.AppendUint64(dst, n)
	}
}

func cutFixed(src []byte, bits int) uint64 {
	switch bits {
	case 8:
		return uint64(src[0])
	case 16:
		return uint64(binary.BigEndian.Uint16(src))
	case 32:
		return uint64(binary.BigEndian.Uint32(src))
	default:
		return binary.BigEndian.Uint64(src)
	}
}

// signed undoes the flipped sign bit.
func signed(n uint64, bits int) int64 {
	shift := 64 - bits
	return int64((n^1<<(bits-1))<<shift) >> shift
}
