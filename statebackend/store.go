package statebackend

import (
	"context"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// SegmentStore makes local files durable on checkpoint storage and brings them back. In a cluster the TaskManager does the work, so
// that a job's process holds neither credentials nor storage clients.
type SegmentStore interface {
	// Upload makes the file at localPath durable under name, which is never written twice, and takes over the local file, which
	// becomes the cached copy. size and crc32c (Castagnoli) are those of the whole file. When it returns nil the file survives a
	// crash of every machine.
	Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error
	// Fetch returns the path of a local read-only copy whose size and checksum have been verified. A file that is gone, or whose
	// content is another one, is a *LostError; other trouble, which may pass, a *StorageError.
	Fetch(ctx context.Context, segment *snapshotv1.Segment) (localPath string, err error)
}

// LocalCopies is implemented by a [SegmentStore] that keeps local copies of files until it is told that they are not needed, and that
// uses one again without reading it.
type LocalCopies interface {
	// Release tells that files that were uploaded or fetched are not needed locally any more. Whoever has one open may go on reading it.
	Release(ctx context.Context, names ...string) error
	// Distrust tells that local copies may be damaged: the next Fetch reads them whole, and replaces them when they are.
	Distrust(ctx context.Context, names ...string) error
}

// Release tells store, if it wants to know, that local copies are not needed any more.
func Release(ctx context.Context, store SegmentStore, names ...string) error {
	if c, ok := store.(LocalCopies); ok && len(names) > 0 {
		return c.Release(ctx, names...)
	}
	return nil
}

// StorageError is a failure to write or upload state. A task that meets one while finishing a snapshot declines the checkpoint and
// goes on.
type StorageError struct {
	Op  string
	Err error
}

// Error implements error.
func (e *StorageError) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StorageError) Unwrap() error { return e.Err }

// LostError tells that a file is gone from storage or is not what was written there. Trying again does not bring it back.
type LostError struct {
	// Name is the file's name on storage.
	Name string
	// Err says what is wrong with it.
	Err error
}

// Error implements error.
func (e *LostError) Error() string {
	return "file " + e.Name + " is lost: " + e.Err.Error() + "; start the job from another checkpoint or savepoint"
}

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }
