package codec

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"
)

// shape is what can be said of a type before any value is seen.
type shape struct {
	// text describes the type down to its structs, whose fields may change.
	text string
	// dynamic is true when an interface occurs anywhere.
	dynamic bool
}

func (s shape) fingerprint() uint64 { return xxhash.Sum64String(s.text) }

// inspect returns the shape of t, or why a value would lose something in MessagePack.
func inspect(t reflect.Type) (shape, error) {
	in := inspector{seen: map[reflect.Type]bool{}}
	text, err := in.describe(t, "")
	return shape{text: text, dynamic: in.dynamic}, err
}

type inspector struct {
	seen    map[reflect.Type]bool
	dynamic bool
}

// at names the place of t inside the whole type.
func (in *inspector) describe(t reflect.Type, at string) (string, error) {
	if t == reflect.TypeFor[time.Time]() {
		return "time", nil
	}
	if encodesItself(t) {
		return "self:" + t.String(), nil
	}
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64,
		reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return t.Kind().String(), nil
	case reflect.Int:
		return "int64", nil
	case reflect.Uint:
		return "uint64", nil
	case reflect.Pointer:
		inner, err := in.describe(t.Elem(), at)
		return "*" + inner, err
	case reflect.Slice:
		inner, err := in.describe(t.Elem(), at+"[]")
		return "[]" + inner, err
	case reflect.Array:
		inner, err := in.describe(t.Elem(), at+"[]")
		return fmt.Sprintf("[%d]%s", t.Len(), inner), err
	case reflect.Map:
		key, err := in.describe(t.Key(), at+"[key]")
		if err != nil {
			return "", err
		}
		value, err := in.describe(t.Elem(), at+"[]")
		return "map[" + key + "]" + value, err
	case reflect.Interface:
		in.dynamic = true
		if t.NumMethod() > 0 {
			return "", in.problem(at, "interface "+t.String()+" has no type to decode into; use a concrete type")
		}
		return "any", nil
	case reflect.Struct:
		return "struct", in.fields(t, at)
	default:
		return "", in.problem(at, "values of kind "+t.Kind().String()+" have no encoding")
	}
}

func (in *inspector) fields(t reflect.Type, at string) error {
	if in.seen[t] {
		return nil
	}
	in.seen[t] = true
	for f := range t.Fields() {
		tag, _, _ := strings.Cut(f.Tag.Get("msgpack"), ",")
		if tag == "-" || f.Name == "_" {
			continue
		}
		place := at + "." + f.Name
		if !f.IsExported() && !f.Anonymous {
			return in.problem(place, "an unexported field would be lost: export it, give the type AppendBinary and UnmarshalBinary "+
				"methods, or tag the field `msgpack:\"-\"`")
		}
		if _, err := in.describe(f.Type, place); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspector) problem(at, what string) error {
	if at == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %s", strings.TrimPrefix(at, "."), what)
}

// encodesItself reports whether MessagePack leaves the encoding to the type's methods.
func encodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[msgpack.CustomEncoder]()) && p.Implements(reflect.TypeFor[msgpack.CustomDecoder]()) ||
		p.Implements(reflect.TypeFor[msgpack.Marshaler]()) && p.Implements(reflect.TypeFor[msgpack.Unmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) && p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) ||
		p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) && p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
