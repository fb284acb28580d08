package windowing

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weir-stream/weir/codec"
)

// Aggregator is a [Function] with one result per window.
type Aggregator[K comparable, T, A, R any] interface {
	Add(acc *A, v T)
	Merge(into *A, from A)
	Result(key K, w Span, acc A) R
}

// Aggregate returns the function of an aggregator.
func Aggregate[K comparable, T, A, R any](agg Aggregator[K, T, A, R]) Function[K, T, A, R] {
	return aggregate[K, T, A, R]{agg}
}

type aggregate[K comparable, T, A, R any] struct{ Aggregator[K, T, A, R] }

// Emit implements Function.
func (a aggregate[K, T, A, R]) Emit(key K, w Span, acc A, emit func(R) error) error {
	return emit(a.Result(key, w, acc))
}

// Reduced is the accumulator of [Reduce].
type Reduced[T any] struct {
	some  bool
	value T
}

// Reduce returns the function that combines records with f.
func Reduce[K comparable, T any](f func(a, b T) T) Function[K, T, Reduced[T], T] {
	return reduce[K, T](f)
}

type reduce[K comparable, T any] func(a, b T) T

// Add implements Function.
func (f reduce[K, T]) Add(acc *Reduced[T], v T) {
	if acc.some {
		v = f(acc.value, v)
	}
	acc.some, acc.value = true, v
}

// Merge implements Function.
func (f reduce[K, T]) Merge(into *Reduced[T], from Reduced[T]) {
	if from.some {
		f.Add(into, from.value)
	}
}

// Emit implements Function.
func (f reduce[K, T]) Emit(_ K, _ Span, acc Reduced[T], emit func(T) error) error {
	return emit(acc.value)
}

// ReducedCodec returns the codec of the accumulator. One that is stored holds a value, so it is encoded as the value is.
func ReducedCodec[T any](c codec.Codec[T]) codec.Codec[Reduced[T]] { return reducedCodec[T]{c} }

type reducedCodec[T any] struct{ of codec.Codec[T] }

// ID implements codec.Codec.
func (c reducedCodec[T]) ID() string { return c.of.ID() }

// Fingerprint implements codec.Codec.
func (c reducedCodec[T]) Fingerprint() uint64 { return c.of.Fingerprint() }

// Schema is for codec.Schema.
func (c reducedCodec[T]) Schema() string { return codec.Schema(c.of) }

// Append implements codec.Codec.
func (c reducedCodec[T]) Append(dst []byte, r Reduced[T]) ([]byte, error) {
	return c.of.Append(dst, r.value)
}

// Decode implements codec.Codec.
func (c reducedCodec[T]) Decode(src []byte) (Reduced[T], error) {
	v, err := c.of.Decode(src)
	return Reduced[T]{some: true, value: v}, err
}

// Apply returns the function that keeps all records and hands them to f.
func Apply[K comparable, T, R any](f func(key K, w Span, values []T, emit func(R) error) error) Function[K, T, []T, R] {
	return apply[K, T, R](f)
}

type apply[K comparable, T, R any] func(key K, w Span, values []T, emit func(R) error) error

// Add implements Function.
func (f apply[K, T, R]) Add(acc *[]T, v T) { *acc = append(*acc, v) }

// Merge implements Function.
func (f apply[K, T, R]) Merge(into *[]T, from []T) { *into = append(*into, from...) }

// Emit implements Function.
func (f apply[K, T, R]) Emit(key K, w Span, acc []T, emit func(R) error) error {
	return f(key, w, acc, emit)
}

// ErrList is returned for bytes that are not an encoded list.
var ErrList = errors.New("malformed list")

// ListCodec returns the codec of a list: of each element its length (varint) and its encoding.
func ListCodec[T any](c codec.Codec[T]) codec.Codec[[]T] { return listCodec[T]{c} }

type listCodec[T any] struct{ of codec.Codec[T] }

// ID implements codec.Codec.
func (c listCodec[T]) ID() string { return "list(" + c.of.ID() + ")" }

// Fingerprint implements codec.Codec.
func (c listCodec[T]) Fingerprint() uint64 { return c.of.Fingerprint() }

// Schema is for codec.Schema.
func (c listCodec[T]) Schema() string { return codec.Schema(c.of) }

// Append implements codec.Codec.
func (c listCodec[T]) Append(dst []byte, vs []T) ([]byte, error) {
	var scratch []byte
	for _, v := range vs {
		var err error
		if scratch, err = c.of.Append(scratch[:0], v); err != nil {
			return nil, err
		}
		dst = binary.AppendUvarint(dst, uint64(len(scratch)))
		dst = append(dst, scratch...)
	}
	return dst, nil
}

// Decode implements codec.Codec.
func (c listCodec[T]) Decode(src []byte) ([]T, error) {
	var vs []T
	for len(src) > 0 {
		length, n := binary.Uvarint(src)
		if n <= 0 || length > uint64(len(src)-n) {
			return nil, fmt.Errorf("%w: element %d is cut off", ErrList, len(vs))
		}
		v, err := c.of.Decode(src[n : n+int(length)])
		if err != nil {
			return nil, err
		}
		vs = append(vs, v)
		src = src[n+int(length):]
	}
	return vs, nil
}
