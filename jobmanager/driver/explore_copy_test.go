package driver

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"
	"unsafe"

	"google.golang.org/protobuf/proto"
)

// The exploration runs the pure cores as they are. A core is copied before it is given an event, and what it becomes is compared with
// all that it has become before, so that equal states are one. Both look at every field, exported or not: a field that is added to a
// core takes part by itself. Messages of protocol buffers are shared and never changed, as everywhere in the product.
//
// How a type is copied and compared is found out once and kept as a shape, because reflection on each value would take most of the time.

var (
	timeType    = reflect.TypeFor[time.Time]()
	messageType = reflect.TypeFor[proto.Message]()
	contextType = reflect.TypeFor[context.Context]()
)

// sharedTypes are types of which a copy refers to the same thing: they decide nothing.
var sharedTypes = map[reflect.Type]bool{
	reflect.TypeFor[*slog.Logger](): true,
	reflect.TypeFor[*Manager]():     true,
	reflect.TypeFor[*cleaner]():     true,
}

// shape is what is known about a type.
type shape struct {
	typ reflect.Type
	// plain types are copied byte by byte.
	plain bool
	// copy makes a deep copy at dst, which is zero, of what is at src. It is nil when an assignment does.
	copy func(c *copier, dst, src unsafe.Pointer)
	// write appends the canonical form of what is at p.
	write func(k *keyer, p unsafe.Pointer)
}

// shapes knows the types that have been met.
type shapes map[reflect.Type]*shape

func (s shapes) of(t reflect.Type) *shape {
	if known, ok := s[t]; ok {
		return known
	}
	sh := &shape{typ: t}
	s[t] = sh // before its parts, which may refer to it
	s.copying(sh)
	s.writing(sh)
	return sh
}

// copier makes a deep copy, with times as move gives them.
type copier struct {
	shapes shapes
	move   func(time.Time) time.Time
	seen   map[unsafe.Pointer]unsafe.Pointer
}

func deepCopy[T any](s shapes, v *T, move func(time.Time) time.Time) *T {
	n := new(T)
	c := copier{shapes: s, move: move, seen: map[unsafe.Pointer]unsafe.Pointer{unsafe.Pointer(v): unsafe.Pointer(n)}}
	c.value(s.of(reflect.TypeFor[T]()), unsafe.Pointer(n), unsafe.Pointer(v))
	return n
}

func (c *copier) value(s *shape, dst, src unsafe.Pointer) {
	if s.copy != nil {
		s.copy(c, dst, src)
		return
	}
	assign(s, dst, src)
}

// assign copies a value that a plain assignment copies.
func assign(s *shape, dst, src unsafe.Pointer) {
	switch {
	case s.plain:
		copy(unsafe.Slice((*byte)(dst), s.typ.Size()), unsafe.Slice((*byte)(src), s.typ.Size()))
	case s.typ.Kind() == reflect.String:
		*(*string)(dst) = *(*string)(src)
	default:
		reflect.NewAt(s.typ, dst).Elem().Set(reflect.NewAt(s.typ, src).Elem())
	}
}

// copying fills in how a type is copied.
func (s shapes) copying(sh *shape) {
	t := sh.typ
	switch {
	case sharedTypes[t], t == contextType:
		return
	case t == timeType:
		sh.copy = func(c *copier, dst, src unsafe.Pointer) {
			if at := *(*time.Time)(src); !at.IsZero() {
				*(*time.Time)(dst) = c.move(at)
			}
		}
		return
	}
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16,
		reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		sh.plain = true
	case reflect.String, reflect.Func, reflect.Chan:
	case reflect.Struct:
		s.copyingStruct(sh)
	case reflect.Array:
		e, n := s.of(t.Elem()), t.Len()
		sh.plain = e.plain
		if e.copy != nil {
			sh.copy = func(c *copier, dst, src unsafe.Pointer) {
				for i := range n {
					e.copy(c, unsafe.Add(dst, uintptr(i)*e.typ.Size()), unsafe.Add(src, uintptr(i)*e.typ.Size()))
				}
			}
		}
	case reflect.Pointer:
		if !t.Implements(messageType) {
			s.copyingPointer(sh)
		}
	case reflect.Interface:
		sh.copy = func(c *copier, dst, src unsafe.Pointer) {
			v := reflect.NewAt(t, src).Elem()
			if v.IsNil() {
				return
			}
			from, to := reflect.New(v.Elem().Type()), reflect.New(v.Elem().Type())
			from.Elem().Set(v.Elem())
			c.value(c.shapes.of(v.Elem().Type()), to.UnsafePointer(), from.UnsafePointer())
			reflect.NewAt(t, dst).Elem().Set(to.Elem())
		}
	case reflect.Slice:
		s.copyingSlice(sh)
	case reflect.Map:
		s.copyingMap(sh)
	default:
		panic(fmt.Sprintf("explore: %s cannot be copied", t))
	}
}

func (s shapes) copyingStruct(sh *shape) {
	type field struct {
		at uintptr
		s  *shape
	}
	var fields []field
	sh.plain = true
	deep := false
	for i := range sh.typ.NumField() {
		f := sh.typ.Field(i)
		e := s.of(f.Type)
		fields = append(fields, field{f.Offset, e})
		sh.plain = sh.plain && e.plain
		deep = deep || e.copy != nil
	}
	if !deep {
		return
	}
	sh.copy = func(c *copier, dst, src unsafe.Pointer) {
		for _, f := range fields {
			c.value(f.s, unsafe.Add(dst, f.at), unsafe.Add(src, f.at))
		}
	}
}

func (s shapes) copyingPointer(sh *shape) {
	elem := sh.typ.Elem()
	sh.copy = func(c *copier, dst, src unsafe.Pointer) {
		from := *(*unsafe.Pointer)(src)
		if from == nil {
			return
		}
		to, known := c.seen[from]
		if !known {
			to = reflect.New(elem).UnsafePointer()
			c.seen[from] = to
			c.value(c.shapes.of(elem), to, from)
		}
		*(*unsafe.Pointer)(dst) = to
	}
}

func (s shapes) copyingSlice(sh *shape) {
	t, e := sh.typ, s.of(sh.typ.Elem())
	sh.copy = func(c *copier, dst, src unsafe.Pointer) {
		v := reflect.NewAt(t, src).Elem()
		if v.IsNil() {
			return
		}
		n := reflect.MakeSlice(t, v.Len(), v.Len())
		if e.copy == nil {
			reflect.Copy(n, v)
		} else {
			for i := range v.Len() {
				e.copy(c, unsafe.Add(n.UnsafePointer(), uintptr(i)*e.typ.Size()), unsafe.Add(v.UnsafePointer(), uintptr(i)*e.typ.Size()))
			}
		}
		reflect.NewAt(t, dst).Elem().Set(n)
	}
}

func (s shapes) copyingMap(sh *shape) {
	t, e := sh.typ, s.of(sh.typ.Elem())
	sh.copy = func(c *copier, dst, src unsafe.Pointer) {
		v := reflect.NewAt(t, src).Elem()
		if v.IsNil() {
			return
		}
		n := reflect.MakeMapWithSize(t, v.Len())
		key, from, to := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()), reflect.New(t.Elem())
		for it := v.MapRange(); it.Next(); {
			key.SetIterKey(it)
			from.Elem().SetIterValue(it)
			if e.copy == nil {
				n.SetMapIndex(key, from.Elem())
				continue
			}
			to.Elem().SetZero()
			e.copy(c, to.UnsafePointer(), from.UnsafePointer())
			n.SetMapIndex(key, to.Elem())
		}
		reflect.NewAt(t, dst).Elem().Set(n)
	}
}
