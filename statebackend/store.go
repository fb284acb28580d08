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
	// Fetch returns the path of a local read-only copy whose size and checksum have been verified.
	Fetch(ctx context.Context, segment *snapshotv1.Segment) (localPath string, err error)
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
