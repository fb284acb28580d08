package sinks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/internal/journal"
	"github.com/weir-stream/weir/statebackend"
)

// inlineRecords is the size in bytes up to which a transaction's records travel with the snapshot instead of in a file.
const inlineRecords = 4 << 10

// keeper keeps what a sink writes until its transaction is committed. The task's goroutine appends and seals; files are uploaded by the
// second halves of snapshots, one after the other.
type keeper struct {
	store  statebackend.SegmentStore
	dir    string // local
	prefix string // on storage, without a trailing slash
	writer *journal.Writer
	files  int // that were named so far

	mu   sync.Mutex
	kept map[uint64]*keptRecords // by the checkpoint that prepared the transaction
}

// keptRecords are those of one prepared transaction.
type keptRecords struct {
	sealed journal.Sealed
	// anchor is the first completed checkpoint known to list the file, 0 before. Until then each snapshot that lists it takes it for
	// its own, as it would have to be written again if the others failed.
	anchor uint64
	// name is the file's on storage, once it is there.
	name string
}

func newKeeper(rt *operator.Runtime) *keeper {
	return &keeper{
		store: rt.Segments, dir: rt.Dir,
		prefix: fmt.Sprintf("%s/jobs/%s/state/%d/%s-%d/%s", rt.ClusterID, rt.JobID, rt.Attempt,
			url.PathEscape(rt.Vertex), rt.Subtask, url.PathEscape(rt.Operator.UID)),
		writer: journal.NewWriter(inlineRecords),
		kept:   map[uint64]*keptRecords{},
	}
}

func (k *keeper) path() string {
	k.files++
	return filepath.Join(k.dir, fmt.Sprintf("records-%d", k.files))
}

// Append implements Journal.
func (k *keeper) Append(record []byte) error { return diskError(k.writer.Append(k.path, record)) }

func diskError(err error) error {
	if err == nil {
		return nil
	}
	return operator.Storage(fmt.Errorf("keep the output on the local disk: %w", err))
}

// seal ends the records of the transaction prepared at barrier n, or forgets them when it was empty.
func (k *keeper) seal(n uint64, empty bool) error {
	if empty {
		return diskError(k.writer.Discard())
	}
	s, err := k.writer.Seal(k.path)
	if err != nil {
		return diskError(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[n] = &keptRecords{sealed: s}
	return nil
}

// listed is kept output as one snapshot lists it.
type listed struct {
	*keptRecords
	prepared uint64 // the checkpoint that prepared the transaction
	owner    uint64 // the checkpoint that the file counts as one of
}

// list returns the records of pending transactions for the snapshot of barrier n, and forgets those of all others. completed is the
// newest checkpoint known to be complete; it lists every transaction that was prepared by then and is pending still.
func (k *keeper) list(n, completed uint64, pending []uint64) []listed {
	k.mu.Lock()
	defer k.mu.Unlock()
	left := k.kept
	k.kept = make(map[uint64]*keptRecords, len(pending))
	out := make([]listed, len(pending))
	for i, prepared := range pending {
		r := left[prepared]
		k.kept[prepared] = r
		if r.anchor == 0 && prepared <= completed {
			r.anchor = completed
		}
		out[i] = listed{keptRecords: r, prepared: prepared, owner: n}
		if r.anchor != 0 {
			out[i].owner = r.anchor
		}
	}
	return out
}

// segments makes the records durable and returns them, one segment for each transaction.
func (k *keeper) segments(ctx context.Context, ls []listed) ([]*snapshotv1.Segment, error) {
	segments := make([]*snapshotv1.Segment, len(ls))
	for i, l := range ls {
		if err := k.upload(ctx, l); err != nil {
			return nil, err
		}
		segments[i] = &snapshotv1.Segment{
			Name: l.name, Size: l.sealed.Size, Crc32C: l.sealed.CRC32C, FormatVersion: journal.Version, Checkpoint: l.owner,
			Inline: l.sealed.Inline, Entries: l.sealed.Records,
		}
	}
	return segments, nil
}

func (k *keeper) upload(ctx context.Context, l listed) error {
	if l.name != "" || l.sealed.Path == "" {
		return nil
	}
	name := fmt.Sprintf("%s/%d-0", k.prefix, l.prepared)
	err := k.store.Upload(ctx, l.sealed.Path, name, l.sealed.Size, l.sealed.CRC32C)
	if err == nil {
		l.name = name
		return statebackend.Release(ctx, k.store, name)
	}
	if _, gone := os.Stat(l.sealed.Path); errors.Is(gone, fs.ErrNotExist) {
		// The store has taken the file over and does not know what became of it: the next snapshot could not list it.
		return operator.Storage(fmt.Errorf("kept records of checkpoint %d are gone: %v", l.prepared, err)) //nolint:errorlint // not a checkpoint to decline
	}
	var storage *statebackend.StorageError
	if errors.As(err, &storage) {
		return err
	}
	return &statebackend.StorageError{Op: fmt.Sprintf("store the records of checkpoint %d", l.prepared), Err: err}
}

// readKept calls do for each record of segments, in order.
func readKept(ctx context.Context, store statebackend.SegmentStore, segments []*snapshotv1.Segment, do func(record []byte) error) error {
	for _, seg := range segments {
		s := journal.Sealed{Inline: seg.GetInline(), Size: seg.GetSize(), CRC32C: seg.GetCrc32C(), Records: seg.GetEntries()}
		if seg.GetName() != "" {
			path, err := store.Fetch(ctx, seg)
			if err != nil {
				return err
			}
			s.Path = path
		}
		err := journal.Read(s, do)
		if errors.Is(err, journal.ErrFormat) || errors.Is(err, journal.ErrChecksum) {
			return &statebackend.LostError{Name: seg.GetName(), Err: err}
		}
		if err == nil && seg.GetName() != "" {
			err = statebackend.Release(ctx, store, seg.GetName())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
