// Package parquetfile is the Parquet format of the file sink.
package parquetfile

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	filesink "github.com/weir-stream/weir/sinks/file"
)

// rowGroup is how many rows a row group has at most; a writer holds as many in memory.
const rowGroup = 100_000

// Format writes the exported fields of a struct as columns, named and typed by their parquet tags as package
// github.com/parquet-go/parquet-go defines them, compressed with Zstandard. Options are that package's.
func Format[T any](options ...parquet.WriterOption) filesink.Format[T] {
	return format[T]{append([]parquet.WriterOption{parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowGroup)}, options...)}
}

type format[T any] struct{ options []parquet.WriterOption }

func (format[T]) Extension() string { return ".parquet" }

// NewEncoder begins a file. The library tells by a panic that a type has no columns.
func (f format[T]) NewEncoder(w io.Writer) (e filesink.Encoder[T], err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("type %T cannot be written as Parquet: %v", *new(T), p)
		}
	}()
	return &encoder[T]{w: parquet.NewGenericWriter[T](w, f.options...)}, nil
}

type encoder[T any] struct {
	w   *parquet.GenericWriter[T]
	row [1]T
}

func (e *encoder[T]) Encode(v T) error {
	e.row[0] = v
	_, err := e.w.Write(e.row[:])
	clear(e.row[:])
	return err
}

func (e *encoder[T]) Close() error { return e.w.Close() }
