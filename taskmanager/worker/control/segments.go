package control

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/statebackend"
)

// segments has the TaskManager store and fetch state files.
type segments struct{ client workerv1.WorkerServiceClient }

var (
	_ statebackend.SegmentStore = segments{}
	_ statebackend.LocalCopies  = segments{}
)

// Upload implements statebackend.SegmentStore.
func (s segments) Upload(ctx context.Context, localPath, name string, size uint64, crc32c uint32) error {
	_, err := s.client.UploadSegment(ctx, &workerv1.UploadSegmentRequest{LocalPath: localPath, Name: name, Size: size, Crc32C: crc32c})
	if err != nil {
		return &statebackend.StorageError{Op: "upload " + name, Err: reason(err)}
	}
	return nil
}

// Fetch implements statebackend.SegmentStore.
func (s segments) Fetch(ctx context.Context, segment *snapshotv1.Segment) (string, error) {
	r, err := s.client.FetchSegment(ctx, &workerv1.FetchSegmentRequest{Segment: segment})
	if err != nil {
		switch status.Code(err) {
		case codes.NotFound, codes.DataLoss:
			return "", &statebackend.LostError{Name: segment.GetName(), Err: reason(err)}
		}
		return "", &statebackend.StorageError{Op: "fetch " + segment.GetName(), Err: reason(err)}
	}
	return r.GetLocalPath(), nil
}

// Release implements statebackend.LocalCopies.
func (s segments) Release(ctx context.Context, names ...string) error {
	return s.tell(ctx, &workerv1.ReleaseSegmentsRequest{Names: names})
}

// Distrust implements statebackend.LocalCopies.
func (s segments) Distrust(ctx context.Context, names ...string) error {
	return s.tell(ctx, &workerv1.ReleaseSegmentsRequest{Names: names, Distrust: true})
}

func (s segments) tell(ctx context.Context, r *workerv1.ReleaseSegmentsRequest) error {
	_, err := s.client.ReleaseSegments(ctx, r)
	switch {
	case status.Code(err) == codes.Unimplemented:
		return nil // an older TaskManager keeps them until this worker ends
	case err != nil:
		return &statebackend.StorageError{Op: "let go of local copies", Err: reason(err)}
	}
	return nil
}

// reason returns what the TaskManager said, without the words of the transport around it. The status stays in the tree.
func reason(err error) error { return &told{status.Convert(err)} }

type told struct{ s *status.Status }

// Error implements error.
func (t *told) Error() string { return t.s.Message() }

// GRPCStatus returns the status, for [status.Code].
func (t *told) GRPCStatus() *status.Status { return t.s }
