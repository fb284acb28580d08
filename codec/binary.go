package codec

import (
	"encoding"
	"reflect"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
)

// binaryCodec serves types that encode themselves. For a pointer type one byte says whether it is nil.
type binaryCodec[T any] struct {
	t       reflect.Type
	pointer bool // T itself is a pointer to the type that encodes itself
	appends bool // it has AppendBinary
	fp      uint64
}

// newBinaryCodec returns nil unless T, or a pointer to it, encodes and decodes itself.
func newBinaryCodec[T any](t reflect.Type) Codec[T] {
	if t.Kind() == reflect.Interface {
		return nil
	}
	p := t
	if t.Kind() != reflect.Pointer {
		p = reflect.PointerTo(t)
	}
	appends := p.Implements(reflect.TypeFor[encoding.BinaryAppender]())
	if !appends && !p.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) ||
		!p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) {
		return nil
	}
	return &binaryCodec[T]{t: p.Elem(), pointer: p == t, appends: appends, fp: xxhash.Sum64String(p.Elem().String())}
}

func (c *binaryCodec[T]) ID() string          { return "binary" }
func (c *binaryCodec[T]) Fingerprint() uint64 { return c.fp }

func (c *binaryCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	self := any(&v)
	if c.pointer {
		if reflect.ValueOf(v).IsNil() {
			return append(dst, 0), nil
		}
		dst = append(dst, 1)
		self = any(v)
	}
	if c.appends {
		return self.(encoding.BinaryAppender).AppendBinary(dst)
	}
	b, err := self.(encoding.BinaryMarshaler).MarshalBinary()
	return append(dst, b...), err
}

func (c *binaryCodec[T]) Decode(src []byte) (v T, err error) {
	if !c.pointer {
		// UnmarshalBinary must copy what it keeps, by its contract.
		err = any(&v).(encoding.BinaryUnmarshaler).UnmarshalBinary(src)
		return v, err
	}
	present, rest, err := cutPresence(src)
	if err != nil || !present {
		return v, err
	}
	v = reflect.New(c.t).Interface().(T)
	err = any(v).(encoding.BinaryUnmarshaler).UnmarshalBinary(rest)
	return v, err
}

// protoCodec serves pointers to protobuf messages: one byte for nil or not, then the deterministic wire form.
type protoCodec[T any] struct {
	message proto.Message // a nil pointer of the type, to make others of
	fp      uint64
}

func newProtoCodec[T any](t reflect.Type) Codec[T] {
	m := reflect.Zero(t).Interface().(proto.Message)
	return &protoCodec[T]{message: m, fp: xxhash.Sum64String(string(m.ProtoReflect().Descriptor().FullName()))}
}

func (c *protoCodec[T]) ID() string          { return "protobuf" }
func (c *protoCodec[T]) Fingerprint() uint64 { return c.fp }

func (c *protoCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	m := any(v).(proto.Message)
	if !m.ProtoReflect().IsValid() {
		return append(dst, 0), nil
	}
	return proto.MarshalOptions{Deterministic: true}.MarshalAppend(append(dst, 1), m)
}

func (c *protoCodec[T]) Decode(src []byte) (v T, err error) {
	present, rest, err := cutPresence(src)
	if err != nil || !present {
		return v, err
	}
	m := c.message.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(rest, m); err != nil {
		return v, err
	}
	return m.(T), nil
}
