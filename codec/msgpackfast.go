package codec

import (
	"encoding"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"time"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
)

// program writes and reads MessagePack of one struct type without reflection: the places of the scalars in it, each with the bytes that
// stand before it, which are the same for all values. It is made once for a type. It writes what the library writes, byte for byte, and reads
// just that; everything else, fields in another order among it, is left to the library.
type program struct {
	steps []step
	tail  string // behind the last scalar
}

type step struct {
	head   string
	kind   stepKind
	bits   int
	offset uintptr
}

type stepKind uint8

const (
	stepInt stepKind = iota + 1
	stepUint
	stepBool
	stepFloat32
	stepFloat64
	stepString
	stepBytes
	stepTime
)

// compile returns nil for types with something else than scalars in structs, or with anything that methods or tags encode.
func compile(t reflect.Type) *program {
	b := &programBuilder{}
	if t.Kind() != reflect.Struct || !b.add(t, 0) {
		return nil
	}
	return &program{steps: b.steps, tail: string(b.head)}
}

type programBuilder struct {
	steps []step
	head  []byte
}

func (b *programBuilder) add(t reflect.Type, offset uintptr) bool {
	s := step{offset: offset}
	switch {
	case t == reflect.TypeFor[time.Time]():
		s.kind = stepTime
	case hasMethods(t):
		return false
	default:
		switch t.Kind() {
		case reflect.Struct:
			return b.addStruct(t, offset)
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			s.kind, s.bits = stepInt, t.Bits()
		case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			s.kind, s.bits = stepUint, t.Bits()
		case reflect.Bool:
			s.kind = stepBool
		case reflect.Float32:
			s.kind = stepFloat32
		case reflect.Float64:
			s.kind = stepFloat64
		case reflect.String:
			s.kind = stepString
		case reflect.Slice:
			if t.Elem().Kind() != reflect.Uint8 || hasMethods(t.Elem()) {
				return false
			}
			s.kind = stepBytes
		default:
			return false
		}
	}
	s.head, b.head = string(b.head), nil
	b.steps = append(b.steps, s)
	return true
}

func (b *programBuilder) addStruct(t reflect.Type, offset uintptr) bool {
	type named struct {
		name  string
		field reflect.StructField
	}
	var fields []named
	seen := map[string]bool{}
	for f := range t.Fields() {
		tag := f.Tag.Get("msgpack")
		switch {
		case tag == "-":
			continue
		case f.Anonymous, f.Name == "_msgpack", strings.ContainsAny(tag, ",:'\\"):
			return false
		case !f.IsExported():
			continue
		}
		name := f.Name
		if tag != "" {
			name = tag
		}
		if seen[name] {
			return false
		}
		seen[name] = true
		fields = append(fields, named{name, f})
	}
	if len(fields) > math.MaxUint16 {
		return false
	}
	if n := len(fields); n < 16 {
		b.head = append(b.head, 0x80|byte(n))
	} else {
		b.head = binary.BigEndian.AppendUint16(append(b.head, 0xde), uint16(n))
	}
	for _, f := range fields {
		b.head = appendText(b.head, f.name)
		if !b.add(f.field.Type, offset+f.field.Offset) {
			return false
		}
	}
	return true
}

// hasMethods reports whether the library may leave the type to its methods.
func hasMethods(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	for _, i := range []reflect.Type{
		reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.CustomDecoder](), reflect.TypeFor[msgpack.Marshaler](),
		reflect.TypeFor[msgpack.Unmarshaler](), reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.BinaryUnmarshaler](),
		reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](), reflect.TypeFor[error](),
	} {
		if p.Implements(i) {
			return true
		}
	}
	return false
}

// append appends the struct at v.
func (p *program) append(dst []byte, v unsafe.Pointer) []byte {
	for i := range p.steps {
		s := &p.steps[i]
		dst = append(dst, s.head...)
		at := unsafe.Add(v, s.offset)
		switch s.kind {
		case stepInt:
			dst = appendInt(dst, loadInt(at, s.bits))
		case stepUint:
			dst = appendUint(dst, loadUint(at, s.bits))
		case stepBool:
			if *(*bool)(at) {
				dst = append(dst, 0xc3)
			} else {
				dst = append(dst, 0xc2)
			}
		case stepFloat32:
			dst = binary.BigEndian.AppendUint32(append(dst, 0xca), math.Float32bits(*(*float32)(at)))
		case stepFloat64:
			dst = binary.BigEndian.AppendUint64(append(dst, 0xcb), math.Float64bits(*(*float64)(at)))
		case stepString:
			dst = appendText(dst, *(*string)(at))
		case stepBytes:
			dst = appendBytesOrNil(dst, *(*[]byte)(at))
		case stepTime:
			dst = appendTime(dst, *(*time.Time)(at))
		}
	}
	return append(dst, p.tail...)
}

func appendInt(dst []byte, n int64) []byte {
	switch {
	case n >= 0:
		return appendUint(dst, uint64(n))
	case n >= -32:
		return append(dst, byte(n))
	case n >= math.MinInt8:
		return append(dst, 0xd0, byte(n))
	case n >= math.MinInt16:
		return binary.BigEndian.AppendUint16(append(dst, 0xd1), uint16(n))
	case n >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(n))
}

func appendUint(dst []byte, n uint64) []byte {
	switch {
	case n <= math.MaxInt8:
		return append(dst, byte(n))
	case n <= math.MaxUint8:
		return append(dst, 0xcc, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), n)
}

func appendText(dst []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, 0xd9, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

func appendBytesOrNil(dst, b []byte) []byte {
	switch n := len(b); {
	case b == nil:
		return append(dst, 0xc0)
	case n <= math.MaxUint8:
		dst = append(dst, 0xc4, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xc5), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(n))
	}
	return append(dst, b...)
}

// extTime is the type of the timestamp extension.
const extTime = 0xff

func appendTime(dst []byte, t time.Time) []byte {
	seconds, nanos := uint64(t.Unix()), uint64(t.Nanosecond())
	switch {
	case seconds>>34 != 0:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc7, 12, extTime), uint32(nanos))
		return binary.BigEndian.AppendUint64(dst, seconds)
	case nanos == 0 && seconds>>32 == 0:
		return binary.BigEndian.AppendUint32(append(dst, 0xd6, extTime), uint32(seconds))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd7, extTime), nanos<<34|seconds)
}

// decode stores what src holds at v and reports whether it could; if not v is to be cleared.
func (p *program) decode(v unsafe.Pointer, src []byte) bool {
	for i := range p.steps {
		s := &p.steps[i]
		if len(src) <= len(s.head) || string(src[:len(s.head)]) != s.head {
			return false
		}
		src = src[len(s.head):]
		at := unsafe.Add(v, s.offset)
		ok := false
		switch s.kind {
		case stepInt:
			var n int64
			n, src, ok = cutInt(src)
			ok = ok && storeInt(at, s.bits, n)
		case stepUint:
			var n uint64
			n, src, ok = cutUint(src)
			ok = ok && storeUint(at, s.bits, n)
		case stepBool:
			*(*bool)(at), ok = src[0] == 0xc3, src[0]|1 == 0xc3
			src = src[1:]
		case stepFloat32:
			if ok = src[0] == 0xca && len(src) > 4; ok {
				*(*float32)(at) = math.Float32frombits(binary.BigEndian.Uint32(src[1:]))
				src = src[5:]
			}
		case stepFloat64:
			if ok = src[0] == 0xcb && len(src) > 8; ok {
				*(*float64)(at) = math.Float64frombits(binary.BigEndian.Uint64(src[1:]))
				src = src[9:]
			}
		case stepString:
			var b []byte
			b, src, ok = cutText(src)
			*(*string)(at) = string(b)
		case stepBytes:
			var b []byte
			b, src, ok = cutBytesOrNil(src)
			if b != nil {
				*(*[]byte)(at) = append(make([]byte, 0, len(b)), b...)
			}
		case stepTime:
			*(*time.Time)(at), src, ok = cutTime(src)
		}
		if !ok {
			return false
		}
	}
	return string(src) == p.tail
}

// cutUint reads a number that is not negative and has fewer than 9 bytes.
func cutUint(src []byte) (n uint64, rest []byte, ok bool) {
	code := src[0]
	if code <= 0x7f {
		return uint64(code), src[1:], true
	}
	if code < 0xcc || code > 0xcf {
		return 0, src, false
	}
	width := 1 << (code - 0xcc)
	if len(src) <= width {
		return 0, src, false
	}
	return cutFixed(src[1:], 8*width), src[1+width:], true
}

func cutInt(src []byte) (n int64, rest []byte, ok bool) {
	code := src[0]
	switch {
	case code >= 0xe0:
		return int64(int8(code)), src[1:], true
	case code < 0xd0 || code > 0xd3:
		u, rest, ok := cutUint(src)
		return int64(u), rest, ok && u <= math.MaxInt64
	}
	width := 1 << (code - 0xd0)
	if len(src) <= width {
		return 0, src, false
	}
	unused := 64 - 8*width
	return int64(cutFixed(src[1:], 8*width)<<unused) >> unused, src[1+width:], true
}

func cutText(src []byte) (text, rest []byte, ok bool) {
	code := src[0]
	switch {
	case code >= 0xa0 && code <= 0xbf:
		return cutCounted(src[1:], int(code&0x1f))
	case code >= 0xd9 && code <= 0xdb:
		return cutSized(src[1:], 1<<(code-0xd9))
	}
	return nil, src, false
}

func cutBytesOrNil(src []byte) (b, rest []byte, ok bool) {
	code := src[0]
	switch {
	case code == 0xc0:
		return nil, src[1:], true
	case code >= 0xc4 && code <= 0xc6:
		return cutSized(src[1:], 1<<(code-0xc4))
	}
	return nil, src, false
}

// cutSized cuts bytes whose number stands before them, in width bytes.
func cutSized(src []byte, width int) (b, rest []byte, ok bool) {
	if len(src) < width {
		return nil, src, false
	}
	return cutCounted(src[width:], int(cutFixed(src, 8*width)))
}

func cutCounted(src []byte, n int) (b, rest []byte, ok bool) {
	if len(src) < n {
		return nil, src, false
	}
	return src[:n:n], src[n:], true
}

func cutTime(src []byte) (t time.Time, rest []byte, ok bool) {
	var seconds, nanos int64
	switch {
	case len(src) >= 6 && src[0] == 0xd6 && src[1] == extTime:
		seconds, rest = int64(binary.BigEndian.Uint32(src[2:])), src[6:]
	case len(src) >= 10 && src[0] == 0xd7 && src[1] == extTime:
		both := binary.BigEndian.Uint64(src[2:])
		seconds, nanos, rest = int64(both&(1<<34-1)), int64(both>>34), src[10:]
	case len(src) >= 15 && src[0] == 0xc7 && src[1] == 12 && src[2] == extTime:
		nanos, seconds, rest = int64(binary.BigEndian.Uint32(src[3:])), int64(binary.BigEndian.Uint64(src[7:])), src[15:]
	default:
		return t, src, false
	}
	t = time.Unix(seconds, nanos)
	if t.IsZero() {
		t = t.UTC() // as the library has it
	}
	return t, rest, true
}
