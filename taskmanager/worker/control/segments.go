package control

import (
	"context"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/statebackend"
)

// segments has the TaskManager store and fetch state files.
type segments struct{ client workerv1.WorkerServiceClient }

var _ statebackend.SegmentStore = segments{}

// Upload implements statebackend.SegmentStore.
func (s segments) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	_, err := s.client.UploadSegment(ctx, &workerv1.UploadSegmentRequest{LocalPath: localPath, Name: name, Size: size, Crc32C: crc32c})
	if err != nil {
		return &statebackend.StorageError{Op: "upload " + name, Err: err}
	}
	return nil
}

// Fetch implements statebackend.SegmentStore.
func (s segments) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	r, err := s.client.FetchSegment(ctx, &workerv1.FetchSegmentRequest{Segment: segment})
	if err != nil {
		return "", &statebackend.StorageError{Op: "fetch " + segment.GetName(), Err: err}
	}
	return r.GetLocalPath(), nil
}
