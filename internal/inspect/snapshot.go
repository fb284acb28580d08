package inspect

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/checkpointfile"
	"github.com/weir-stream/weir/statebackend/blob"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// maxFile bounds a metadata file or a task's snapshot in bytes.
const maxFile = 1 << 30

// Opener opens the bucket at a URL.
type Opener func(ctx context.Context, url string) (blob.Bucket, error)

// Snapshot is an open savepoint or checkpoint.
type Snapshot struct {
	// Metadata is without the tasks' snapshots.
	Metadata *snapshotv1.CheckpointMetadata
	tasks    []*snapshotv1.TaskSnapshot

	bucket blob.Bucket // the storage that names are relative to
	store  *segmentstore.Store
	dir    string
}

// Open reads the metadata of the savepoint or checkpoint at an address or a local path: its directory, or the file metadata in it.
// Segments are read later, by way of a temporary directory; the caller must Close.
func Open(ctx context.Context, address string, open Opener) (_ *Snapshot, err error) {
	if !strings.Contains(address, "://") {
		path, err := filepath.Abs(address)
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%q is neither a URL nor a directory here: %w", address, err)
		}
		address = "file://" + strings.NewReplacer("%", "%25", "?", "%3F", "#", "%23", " ", "%20").Replace(filepath.ToSlash(path))
	}
	if dir, name := blob.Split(address); name == "metadata" || name == "" {
		address = dir
	}
	md, err := readMetadata(ctx, address, open)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Metadata: md}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	root := address
	if !md.GetSavepoint() {
		if root, err = rootOf(address, md); err != nil {
			return nil, err
		}
	}
	if s.bucket, err = open(ctx, root); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "weir-state-"); err != nil {
		return nil, err
	}
	if s.store, err = segmentstore.Open(segmentstore.Config{Dir: s.dir, Bucket: s.bucket, MaxBytes: 1, OpenBucket: open}); err != nil {
		return nil, err
	}
	return s, s.readTasks(ctx)
}

// rootOf returns the storage that a checkpoint's names are relative to.
func rootOf(address string, md *snapshotv1.CheckpointMetadata) (string, error) {
	path, query, found := strings.Cut(address, "?")
	below := fmt.Sprintf("/%s/jobs/%s/checkpoints/%d", md.GetClusterId(), md.GetJobId(), md.GetCheckpoint())
	root, ok := strings.CutSuffix(path, below)
	if !ok {
		return "", fmt.Errorf("%s: a checkpoint's files are found from its own place on storage, which ends with %s: name it there, or take a savepoint", address, below)
	}
	if found {
		root += "?" + query
	}
	return root, nil
}

func readMetadata(ctx context.Context, address string, open Opener) (*snapshotv1.CheckpointMetadata, error) {
	b, err := open(ctx, address)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	data, err := readAll(ctx, b, "metadata")
	if errors.Is(err, blob.ErrNotExist) {
		return nil, fmt.Errorf("there is no savepoint or checkpoint at %s: it has no file metadata", address)
	}
	if err != nil {
		return nil, err
	}
	return checkpointfile.Decode(blob.Join(address, "metadata"), data)
}

func readAll(ctx context.Context, b blob.Bucket, name string) ([]byte, error) {
	r, err := b.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, maxFile)
	}
	return data, err
}

func (s *Snapshot) readTasks(ctx context.Context) error {
	for _, h := range s.Metadata.GetTasks() {
		data := h.GetSnapshot()
		var err error
		if h.GetSpilled() != nil {
			data, err = s.readSpilled(ctx, h.GetSpilled())
		}
		task := &snapshotv1.TaskSnapshot{}
		if err == nil {
			err = proto.Unmarshal(data, task)
		}
		if err != nil {
			return fmt.Errorf("read the snapshot of %s[%d]: %w", h.GetVertex(), h.GetSubtask(), err)
		}
		s.tasks = append(s.tasks, task)
		h.Snapshot = nil
	}
	return nil
}

func (s *Snapshot) readSpilled(ctx context.Context, seg *snapshotv1.Segment) ([]byte, error) {
	scope := s.store.Scope()
	defer scope.Close()
	path, err := scope.Fetch(ctx, seg)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err == nil && crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) != seg.GetCrc32C() {
		err = segmentstore.ErrCorrupt
	}
	return data, err
}

// Close removes the temporary directory.
func (s *Snapshot) Close() error {
	var errs []error
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.bucket != nil {
		errs = append(errs, s.bucket.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
