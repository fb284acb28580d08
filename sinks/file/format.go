package filesink

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Format is how records become a file.
type Format[T any] interface {
	// Extension ends the name of a file, with its dot.
	Extension() string
	// NewEncoder begins a file.
	NewEncoder(w io.Writer) (Encoder[T], error)
}

// Encoder writes one file.
type Encoder[T any] interface {
	// Encode adds a record. It may buffer.
	Encode(v T) error
	// Close writes what is left; it does not close the file.
	Close() error
}

// JSONLines writes one JSON value per line, as encoding/json does, without escapes for HTML.
func JSONLines[T any]() Format[T] { return jsonLines[T]{} }

type jsonLines[T any] struct{}

func (jsonLines[T]) Extension() string { return ".jsonl" }

func (jsonLines[T]) NewEncoder(w io.Writer) (Encoder[T], error) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return jsonEncoder[T]{e}, nil
}

type jsonEncoder[T any] struct{ e *json.Encoder }

func (e jsonEncoder[T]) Encode(v T) error { return e.e.Encode(v) }
func (e jsonEncoder[T]) Close() error     { return nil }

// Gzip compresses the files of a format.
func Gzip[T any](f Format[T]) Format[T] {
	return compressed[T]{f, ".gz", func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }}
}

// Zstd compresses the files of a format.
func Zstd[T any](f Format[T]) Format[T] {
	return compressed[T]{f, ".zst", func(w io.Writer) (io.WriteCloser, error) {
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1)) // no goroutines of its own
	}}
}

type compressed[T any] struct {
	inner     Format[T]
	extension string
	compress  func(io.Writer) (io.WriteCloser, error)
}

func (f compressed[T]) Extension() string { return f.inner.Extension() + f.extension }

func (f compressed[T]) NewEncoder(w io.Writer) (Encoder[T], error) {
	c, err := f.compress(w)
	if err != nil {
		return nil, err
	}
	inner, err := f.inner.NewEncoder(c)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return compressedEncoder[T]{inner, c}, nil
}

type compressedEncoder[T any] struct {
	Encoder[T]
	c io.Closer
}

func (e compressedEncoder[T]) Close() error {
	err := e.Encoder.Close()
	if cerr := e.c.Close(); err == nil {
		err = cerr
	}
	return err
}
