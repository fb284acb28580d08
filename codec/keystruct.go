package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// structKey is the concatenation of a key's parts in the order of declaration, each in a form that sorts as the part does and of
// which none is the beginning of another.
type structKey[K comparable] struct {
	id    string
	parts []keyPart
}

type partKind uint8

const (
	partInt partKind = iota + 1
	partUint
	partBool
	partString
	partBytes // array of bytes
	partTime
)

// keyPart is one scalar inside a key.
type keyPart struct {
	kind   partKind
	offset uintptr
	size   int // bits of an integer, length of a byte array
}

func newStructKey[K comparable](t reflect.Type) (Key[K], error) {
	k := &structKey[K]{}
	var err error
	k.id, err = k.add(t, 0, "")
	return k, err
}

// add appends the parts of t, which lies at an offset, and returns t's description. at names the place for errors.
func (c *structKey[K]) add(t reflect.Type, offset uintptr, at string) (string, error) {
	part := keyPart{offset: offset}
	var id string
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		part.kind, part.size, id = partInt, t.Bits(), "int"+strconv.Itoa(t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		part.kind, part.size, id = partUint, t.Bits(), "uint"+strconv.Itoa(t.Bits())
	case reflect.Bool:
		part.kind, id = partBool, "bool"
	case reflect.String:
		part.kind, id = partString, "string"
	case reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			return c.addArray(t, offset, at)
		}
		part.kind, part.size, id = partBytes, t.Len(), fmt.Sprintf("[%d]byte", t.Len())
	case reflect.Struct:
		if t != reflect.TypeFor[time.Time]() {
			return c.addStruct(t, offset, at)
		}
		part.kind, id = partTime, "time"
	default:
		err := fmt.Errorf("a %s has no canonical encoding", t.Kind())
		if at != "" {
			err = fmt.Errorf("%s: %w", strings.TrimPrefix(at, "."), err)
		}
		return "", err
	}
	c.parts = append(c.parts, part)
	return id, nil
}

func (c *structKey[K]) addArray(t reflect.Type, offset uintptr, at string) (string, error) {
	id := ""
	for i := range t.Len() {
		var err error
		if id, err = c.add(t.Elem(), offset+uintptr(i)*t.Elem().Size(), at+"[]"); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("[%d]%s", t.Len(), id), nil
}

func (c *structKey[K]) addStruct(t reflect.Type, offset uintptr, at string) (string, error) {
	var ids []string
	for f := range t.Fields() {
		if f.Name == "_" {
			continue
		}
		id, err := c.add(f.Type, offset+f.Offset, at+"."+f.Name)
		if err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	return "struct{" + strings.Join(ids, ",") + "}", nil
}

func (c *structKey[K]) ID() string { return c.id }

func (c *structKey[K]) Append(dst []byte, k K) []byte {
	for _, part := range c.parts {
		p := unsafe.Add(unsafe.Pointer(&k), part.offset)
		switch part.kind {
		case partInt:
			dst = appendFixed(dst, uint64(loadInt(p, part.size))^1<<(part.size-1), part.size)
		case partUint:
			dst = appendFixed(dst, loadUint(p, part.size), part.size)
		case partBool:
			dst = appendBool(dst, *(*bool)(p))
		case partString:
			dst = appendEscapedString(dst, *(*string)(p))
		case partBytes:
			dst = append(dst, unsafe.Slice((*byte)(p), part.size)...)
		case partTime:
			t := *(*time.Time)(p)
			dst = binary.BigEndian.AppendUint64(dst, uint64(t.Unix())^1<<63)
			dst = binary.BigEndian.AppendUint32(dst, uint32(t.Nanosecond()))
		}
	}
	return dst
}

func (c *structKey[K]) Decode(src []byte) (k K, err error) {
	for _, part := range c.parts {
		if src, err = part.decode(unsafe.Add(unsafe.Pointer(&k), part.offset), src); err != nil {
			return k, err
		}
	}
	if len(src) > 0 {
		return k, ErrTrailing
	}
	return k, nil
}

// decode stores the part at p and returns what follows it in src.
func (part keyPart) decode(p unsafe.Pointer, src []byte) (rest []byte, err error) {
	size := part.size / 8
	switch part.kind {
	case partBytes:
		size = part.size
	case partTime:
		size = 12
	case partBool, partString:
		size = 0
	}
	if len(src) < size {
		return nil, ErrTruncated
	}
	switch part.kind {
	case partInt:
		storeInt(p, part.size, signed(cutFixed(src, part.size), part.size))
	case partUint:
		storeUint(p, part.size, cutFixed(src, part.size))
	case partBool:
		*(*bool)(p), src, err = cutBool(src)
	case partString:
		var s []byte
		s, src, err = CutEscaped(nil, src)
		*(*string)(p) = string(s)
	case partBytes:
		copy(unsafe.Slice((*byte)(p), part.size), src)
	case partTime:
		nsec := binary.BigEndian.Uint32(src[8:])
		if nsec >= 1e9 {
			return nil, errors.Join(ErrInvalid, fmt.Errorf("%d nanoseconds", nsec))
		}
		*(*time.Time)(p) = time.Unix(int64(binary.BigEndian.Uint64(src)^1<<63), int64(nsec)).UTC()
	}
	if err != nil {
		return nil, err
	}
	return src[size:], nil
}
