package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/statebackend/blob"
)

// maxMetadataBytes bounds what is read as metadata or as a spilled task snapshot.
const maxMetadataBytes = 1 << 30

// jobPrefix is where a job's files are.
func jobPrefix(clusterID, jobID string) string { return clusterID + "/jobs/" + jobID + "/" }

// putMetadata makes a metadata file durable under a write-once name. A file of the same content that is there already is this one: an
// earlier try wrote it.
func putMetadata(ctx context.Context, b blob.Bucket, name string, md *snapshotv1.CheckpointMetadata) (*snapshotv1.Segment, error) {
	data, err := checkpointfile.Encode(md)
	if err != nil {
		return nil, err
	}
	if err := putBytes(ctx, b, name, data); err != nil {
		return nil, err
	}
	return checkpointfile.Segment(name, data), nil
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func putBytes(ctx context.Context, b blob.Bucket, name string, data []byte) error {
	err := b.Put(ctx, name, bytes.NewReader(data))
	if errors.Is(err, blob.ErrExists) {
		there, rerr := readAll(ctx, b, name)
		if rerr == nil && bytes.Equal(there, data) {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func readAll(ctx context.Context, b blob.Bucket, name string) ([]byte, error) {
	r, err := b.Open(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxMetadataBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxMetadataBytes {
		return nil, fmt.Errorf("read %s: more than %d bytes", name, maxMetadataBytes)
	}
	return data, nil
}

// Opener opens the bucket at a URL.
type Opener func(ctx context.Context, url string) (blob.Bucket, error)

// readNamed reads an object of the bucket, or of another one when the name is a full URL.
func readNamed(ctx context.Context, b blob.Bucket, open Opener, name string) ([]byte, error) {
	if !strings.Contains(name, "://") {
		return readAll(ctx, b, name)
	}
	other, base, err := openParent(ctx, open, name)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	return readAll(ctx, other, base)
}

func openParent(ctx context.Context, open Opener, url string) (blob.Bucket, string, error) {
	dir, base := blob.Split(url)
	b, err := open(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	return b, base, nil
}

// ReadMetadata reads and checks the metadata file at a name, which may be a full URL. A file that is not what was written gives an
// error that wraps checkpointfile.ErrDamaged.
func ReadMetadata(ctx context.Context, b blob.Bucket, open Opener, name string) (*snapshotv1.CheckpointMetadata, *snapshotv1.Segment, error) {
	data, err := readNamed(ctx, b, open, name)
	if err != nil {
		return nil, nil, err
	}
	md, err := checkpointfile.Decode(name, data)
	if err != nil {
		return nil, nil, err
	}
	return md, checkpointfile.Segment(name, data), nil
}

// ReadCheckpoint reads the metadata file of a checkpoint in the log, which must be the very file that the log vouches for.
func ReadCheckpoint(ctx context.Context, b blob.Bucket, open Opener, cp *raftv1.CompletedCheckpoint) (*snapshotv1.CheckpointMetadata, error) {
	data, err := readNamed(ctx, b, open, cp.GetMetadata().GetName())
	if err != nil {
		return nil, err
	}
	if err := checkpointfile.Check(cp.GetMetadata(), data); err != nil {
		return nil, err
	}
	return checkpointfile.Decode(cp.GetMetadata().GetName(), data)
}

// readSpilled reads a task's snapshot that is in a file of its own.
func readSpilled(ctx context.Context, b blob.Bucket, open Opener, s *snapshotv1.Segment) ([]byte, error) {
	data, err := readNamed(ctx, b, open, s.GetName())
	if err != nil {
		return nil, err
	}
	if uint64(len(data)) != s.GetSize() || crc32.Checksum(data, castagnoli()) != s.GetCrc32C() {
		return nil, fmt.Errorf("%s is damaged: its size or checksum is not the one that its checkpoint names", s.GetName())
	}
	return data, nil
}
