// Package jsoncodec turns values into JSON and back with a fast library that takes and makes what encoding/json does.
//
// [Decode] and [Encode] are for the decode and encode functions of sources and sinks; [For] is a codec for state, or for records between
// tasks, where others than the job are to read them: it is larger and slower than what codec.For chooses.
package jsoncodec

import (
	"fmt"

	"github.com/goccy/go-json"

	"github.com/weir-stream/weir/codec"
)

// Decode parses exactly one JSON value, by the rules and struct tags of encoding/json: unknown fields are passed over, and what is not JSON
// is an error wherever it stands; but for numbers in fields with the option string, of which +5 and .5 are taken. The result does not alias data.
func Decode[T any](data []byte) (v T, err error) {
	err = json.Unmarshal(data, &v)
	return v, err
}

// Encode returns v as encoding/json prints &v: methods of *T count.
func Encode[T any](v T) ([]byte, error) { return json.Marshal(&v) }

// For returns a codec that writes JSON. Fields may be added, removed and change their type as far as JSON takes it; that a changed type
// cannot be read shows only when a value of it is read.
func For[T any]() codec.Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

// ID implements codec.Codec.
func (jsonCodec[T]) ID() string { return "json" }

// Fingerprint implements codec.Codec.
func (jsonCodec[T]) Fingerprint() uint64 { return 0 }

// Append implements codec.Codec.
func (jsonCodec[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := json.Marshal(&v)
	return append(dst, b...), err
}

// Decode implements codec.Codec.
func (jsonCodec[T]) Decode(src []byte) (T, error) {
	v, err := Decode[T](src)
	if err != nil {
		return v, fmt.Errorf("%w: %w", codec.ErrInvalid, err)
	}
	return v, nil
}
