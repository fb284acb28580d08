// Package blob is the storage of checkpoints: named write-once objects. The driver for local and mounted file systems is here; drivers
// for S3 and HDFS live in packages of their own, so that job binaries do not link them.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/url"
	"time"
)

// Errors of buckets, to be tested with errors.Is.
var (
	// ErrExists: an object of that name is there already; nothing was written.
	ErrExists = errors.New("object exists already")
	// ErrNotExist: there is no object of that name.
	ErrNotExist = errors.New("object does not exist")
	// ErrNoSpace: the storage is full or a quota is used up.
	ErrNoSpace = errors.New("no space left on checkpoint storage")
	// ErrName: the name cannot be used for an object.
	ErrName = errors.New("invalid object name")
	// ErrRefused: the storage answers, and does not let us do this: no or wrong credentials, no permission, no such bucket.
	ErrRefused = errors.New("checkpoint storage refuses")
	// ErrUnavailable: the storage does not answer, or says that it cannot now. Another try may help.
	ErrUnavailable = errors.New("checkpoint storage does not answer")
)

// Attributes describe an object.
type Attributes struct {
	Name    string
	Size    int64 // bytes
	ModTime time.Time
}

// Bucket holds objects under slash-separated names. Objects are written once, whole, and never change. All methods may be called from
// any goroutine.
type Bucket interface {
	// Put writes an object from r. When it returns nil, the object is complete and survives a crash of the machine; when it returns
	// an error, there is no new object. It returns ErrExists when the name is taken, ErrNoSpace when the storage is full.
	Put(ctx context.Context, name string, r io.Reader) error
	// Open returns a reader of an object, or ErrNotExist.
	Open(ctx context.Context, name string) (io.ReadCloser, error)
	// Stat returns the attributes of an object, or ErrNotExist.
	Stat(ctx context.Context, name string) (Attributes, error)
	// List yields the objects whose names begin with prefix, in order of name. After an error nothing more is yielded.
	List(ctx context.Context, prefix string) iter.Seq2[Attributes, error]
	// Delete removes an object; an absent one is no error.
	Delete(ctx context.Context, name string) error
	// URL returns the address that opens this bucket.
	URL() string
	// Close releases the bucket's resources.
	Close() error
}

// OpenURL opens the bucket at an address like file:///var/lib/weir. Package storage opens those of all drivers.
func OpenURL(_ context.Context, address string) (Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("checkpoint storage %q: %w", address, err)
	}
	switch u.Scheme {
	case "file":
		return openFile(u)
	default:
		return nil, fmt.Errorf("checkpoint storage %q: unknown scheme %q; known here are: file (file:///absolute/path)", address, u.Scheme)
	}
}
