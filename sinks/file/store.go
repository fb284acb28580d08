package filesink

import (
	"context"
	"io"
	"iter"
)

// Place says where files are kept, before anything is opened.
type Place interface {
	// String names the place for people.
	String() string
	// Validate checks the settings without I/O.
	Validate() error
	// Open opens the store. It is called once by each subtask.
	Open(ctx context.Context) (Store, error)
}

// Store keeps files under names: paths with slashes, relative to the place. It may be used from several goroutines.
//
// What a method has done is durable when it returns nil, and seen by every process at once. An error wraps fs.ErrNotExist where a file
// is missing.
type Store interface {
	// Create starts a file that gets its name when it is sealed. The context holds for as long as it is written.
	Create(ctx context.Context, name string) (File, error)
	// Publish renames a sealed file. Who sees the new name sees the whole content. A file of that name, which can only be the same one
	// of an earlier try, is replaced.
	Publish(ctx context.Context, from, to string) error
	// Exists reports whether a file is there.
	Exists(ctx context.Context, name string) (bool, error)
	// Read returns the content of a small file.
	Read(ctx context.Context, name string) ([]byte, error)
	// Replace makes data the content of a small file, in one step.
	Replace(ctx context.Context, name string, data []byte) error
	// List yields the names that begin with a prefix, which ends with a slash. Those of files that are not sealed are among them where
	// the store knows them; Remove takes them.
	List(ctx context.Context, prefix string) iter.Seq2[string, error]
	// Remove removes a file; one that is missing is none.
	Remove(ctx context.Context, name string) error
	Close() error
}

// File is a file that is being written, by one goroutine.
type File interface {
	io.Writer
	// Seal ends the file and gives it its name.
	Seal(ctx context.Context) error
	// Discard gives the file up.
	Discard() error
}
