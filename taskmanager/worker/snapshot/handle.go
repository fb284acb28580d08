package snapshot

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// spillAbove is the size in bytes above which an encoded task snapshot is written to storage instead of travelling by value, so
// that no control message grows with the state.
const spillAbove = 1 << 20

// Writer makes the handles of one task.
type Writer struct {
	Store statebackend.SegmentStore
	// Dir is an existing local directory for files on their way to storage.
	Dir string
	// Prefix is where on storage the task's own files go, without a trailing slash.
	Prefix string
}

// Prefix returns where a task's files go on checkpoint storage.
func Prefix(clusterID, jobID string, attempt uint64, vertex string, subtask int) string {
	return fmt.Sprintf("%s/jobs/%s/state/%d/%s-%d", clusterID, jobID, attempt, url.PathEscape(vertex), subtask)
}

// Handle encodes the snapshot that the task took for checkpoint n. delta is the number of bytes that it added to storage. A failure
// to store it is a *statebackend.StorageError.
func (w *Writer) Handle(ctx context.Context, n uint64, s *snapshotv1.TaskSnapshot, ended bool) (h *snapshotv1.TaskHandle, delta uint64, err error) {
	h = &snapshotv1.TaskHandle{Vertex: s.GetVertex(), Subtask: s.GetSubtask(), Ended: ended}
	for _, op := range s.GetOperators() {
		h.Committables += uint32(len(op.GetCommittables()))
		add := func(seg *snapshotv1.Segment, records bool) {
			if seg.GetCheckpoint() == n {
				delta += seg.GetSize()
			}
			if seg.GetName() != "" {
				h.Files = append(h.Files, &snapshotv1.FileReference{
					Name: seg.GetName(), Size: seg.GetSize(), Checkpoint: seg.GetCheckpoint(), Crc32C: seg.GetCrc32C(), Records: records,
				})
			}
		}
		for _, seg := range op.GetKeyed().GetSegments() {
			add(seg, false)
		}
		for _, c := range op.GetCommittables() {
			for _, seg := range c.GetRecords() {
				add(seg, true)
			}
		}
	}
	data, err := proto.Marshal(s)
	if err != nil {
		return nil, 0, fmt.Errorf("encode the snapshot of checkpoint %d: %w", n, err)
	}
	if len(data) <= spillAbove {
		h.Snapshot = data
		return h, delta, nil
	}
	seg, err := w.spill(ctx, n, data)
	if err != nil {
		return nil, 0, err
	}
	h.Spilled = seg
	h.Files = append(h.Files, &snapshotv1.FileReference{Name: seg.GetName(), Size: seg.GetSize(), Checkpoint: n, Crc32C: seg.GetCrc32C()})
	return h, delta + seg.GetSize(), nil
}

func (w *Writer) spill(ctx context.Context, n uint64, data []byte) (*snapshotv1.Segment, error) {
	fail := func(err error) error {
		return &statebackend.StorageError{Op: fmt.Sprintf("store the snapshot of checkpoint %d", n), Err: err}
	}
	local := filepath.Join(w.Dir, fmt.Sprintf("snapshot-%d", n))
	if err := os.WriteFile(local, data, 0o600); err != nil {
		return nil, fail(err)
	}
	seg := &snapshotv1.Segment{
		Name:       fmt.Sprintf("%s/_task/%d-0", w.Prefix, n),
		Size:       uint64(len(data)),
		Crc32C:     crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)),
		Checkpoint: n,
	}
	if err := w.Store.Upload(ctx, local, seg.GetName(), seg.GetSize(), seg.GetCrc32C()); err != nil {
		_ = os.Remove(local)
		return nil, fail(err)
	}
	if err := statebackend.Release(ctx, w.Store, seg.GetName()); err != nil {
		return nil, fail(err)
	}
	return seg, nil
}
