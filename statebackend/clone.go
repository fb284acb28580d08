package statebackend

import (
	"reflect"
	"time"

	"github.com/weir-stream/weir/codec"
)

// cloner returns how accumulators of type A are copied when they are to be changed while a snapshot may still encode them: by
// assignment when nothing in A can be changed through a copy, else by A's own Clone method, else by encoding and decoding.
func cloner[A any](c codec.Codec[A]) func(A) (A, error) {
	if plain(reflect.TypeFor[A]()) {
		return nil
	}
	switch any(*new(A)).(type) {
	case interface{ Clone() A }:
		return func(a A) (A, error) { return any(a).(interface{ Clone() A }).Clone(), nil }
	}
	if _, ok := any(new(A)).(interface{ Clone() A }); ok {
		return func(a A) (A, error) { return any(&a).(interface{ Clone() A }).Clone(), nil }
	}
	return func(a A) (A, error) {
		b, err := c.Append(nil, a)
		if err != nil {
			return a, err
		}
		return c.Decode(b)
	}
}

// plain reports whether a value of type t shares nothing that can be changed with a copy made by assignment.
func plain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Array:
		return plain(t.Elem())
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return true
		}
		for f := range t.Fields() {
			if !plain(f.Type) {
				return false
			}
		}
		return true
	default:
		return false
	}
}
