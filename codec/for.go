package codec

import (
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"
)

// For returns the codec of T, chosen by T alone and in this order: protobuf messages; types with AppendBinary or MarshalBinary, and
// UnmarshalBinary; booleans, integers, floats, strings, byte slices and time.Time by encodings of their own; everything else by
// MessagePack with struct fields by name, so that fields can be added and removed later.
//
// It returns an error for types that would lose something on the way: channels, functions, non-empty interfaces, and structs with
// unexported fields that no method encodes (unless tagged `msgpack:"-"`).
func For[T any]() (Codec[T], error) {
	t := reflect.TypeFor[T]()
	if t == reflect.TypeFor[time.Time]() {
		return timeCodec[T]{}, nil
	}
	if t.Implements(reflect.TypeFor[proto.Message]()) && t.Kind() == reflect.Pointer {
		return newProtoCodec[T](t), nil
	}
	if c := newBinaryCodec[T](t); c != nil {
		return c, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return boolCodec[T]{}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return intCodec[T]{bits: t.Bits()}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return uintCodec[T]{bits: t.Bits()}, nil
	case reflect.Float32:
		return float32Codec[T]{}, nil
	case reflect.Float64:
		return float64Codec[T]{}, nil
	case reflect.String:
		return stringCodec[T]{}, nil
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return bytesCodec[T]{}, nil
		}
	}
	c, err := newMsgpackCodec[T](t)
	if err != nil {
		return nil, fmt.Errorf("type %s cannot be encoded: %w", t, err)
	}
	return c, nil
}
