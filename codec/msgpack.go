package codec

import (
	"bytes"
	"reflect"
	"sync"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
)

// msgpackCodec writes MessagePack with struct fields by name. Equal maps may have different encodings.
type msgpackCodec[T any] struct {
	fp       uint64
	fast     *program // nil for types that take the library
	node     *node
	schema   string
	encoders sync.Pool // *msgpackEncoder
	decoders sync.Pool // *msgpackDecoder
}

type msgpackEncoder struct {
	enc *msgpack.Encoder
	buf []byte
}

// Write implements io.Writer.
func (e *msgpackEncoder) Write(p []byte) (int, error) {
	e.buf = append(e.buf, p...)
	return len(p), nil
}

// WriteByte implements io.ByteWriter.
func (e *msgpackEncoder) WriteByte(b byte) error {
	e.buf = append(e.buf, b)
	return nil
}

type msgpackDecoder struct {
	dec *msgpack.Decoder
	src bytes.Reader
}

func newMsgpackCodec[T any](t reflect.Type) (Codec[T], error) {
	s, err := inspect(t)
	if err != nil {
		return nil, err
	}
	n := newNode(t, map[reflect.Type]*node{})
	c := &msgpackCodec[T]{fp: s.fingerprint(), node: n, schema: n.schema()}
	c.encoders.New = func() any {
		e := &msgpackEncoder{}
		e.enc = msgpack.NewEncoder(e)
		// Inside an interface the width of an integer tells its type, so that it comes back as it went.
		e.enc.UseCompactInts(!s.dynamic)
		return e
	}
	c.decoders.New = func() any {
		d := &msgpackDecoder{}
		d.dec = msgpack.NewDecoder(&d.src)
		return d
	}
	if fast := compile(t); fast != nil {
		// Extensions registered with the library are nowhere to be seen but in what it writes.
		var zero T
		if b, err := c.appendAny(nil, zero); err == nil && string(b) == string(fast.append(nil, unsafe.Pointer(&zero))) {
			c.fast = fast
		}
	}
	return c, nil
}

func (c *msgpackCodec[T]) ID() string          { return "msgpack" }
func (c *msgpackCodec[T]) Fingerprint() uint64 { return c.fp }

// Schema is for [Schema].
func (c *msgpackCodec[T]) Schema() string { return c.schema }

func (c *msgpackCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	if c.fast != nil {
		return c.fast.append(dst, unsafe.Pointer(&v)), nil
	}
	return c.appendAny(dst, v)
}

func (c *msgpackCodec[T]) Decode(src []byte) (T, error) {
	if c.fast != nil {
		var v T
		if c.fast.decode(unsafe.Pointer(&v), src) {
			return v, nil
		}
	}
	return c.decodeAny(src)
}

// appendAny encodes through the library.
func (c *msgpackCodec[T]) appendAny(dst []byte, v T) ([]byte, error) {
	e := c.encoders.Get().(*msgpackEncoder)
	defer c.encoders.Put(e)
	e.buf = dst
	err := e.enc.Encode(&v)
	dst, e.buf = e.buf, nil
	return dst, err
}

// decodeAny decodes through the library.
func (c *msgpackCodec[T]) decodeAny(src []byte) (v T, err error) {
	if err := scan(src, c.node); err != nil {
		return v, err
	}
	d := c.decoders.Get().(*msgpackDecoder)
	defer c.decoders.Put(d)
	d.src.Reset(src)
	err = d.dec.Decode(&v)
	return v, err
}
