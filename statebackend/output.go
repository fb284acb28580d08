package statebackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/statebackend/segment"
)

// uploadsAtATime bounds how many files of a run are uploaded at a time. Each waits for storage most of the time: for an fsync, or an answer.
const uploadsAtATime = 8

// output writes one run of rows as segments of bounded size.
type output struct {
	f     *Frozen
	piece uint64 // size after which a segment ends with its key group
	w     *segment.Writer
	name  string // of what w writes, on storage
	parts []*part
	// uploads are under way from the time of uploadTo on. A writer that is ahead of them by uploadsAtATime files waits.
	uploads *errgroup.Group
	ctx     context.Context //nolint:containedctx // it ends with the uploads, which discard waits for
	cancel  context.CancelFunc
}

// part is a segment of a run.
type part struct {
	segment.Result
	name string
	// stored is set by the upload, when the local file is in the store's hands.
	stored atomic.Bool
}

// newOutput returns an empty run of about that many bytes.
func (f *Frozen) newOutput(bytes uint64) *output {
	return &output{f: f, piece: f.core.limits.piece(f.before.base(), bytes)}
}

// uploadTo makes the segments of the run durable as they are finished, those that are there already at once.
func (o *output) uploadTo(ctx context.Context) {
	ctx, o.cancel = context.WithCancel(ctx)
	o.uploads, o.ctx = errgroup.WithContext(ctx)
	o.uploads.SetLimit(uploadsAtATime)
	for _, p := range o.parts {
		o.send(p)
	}
}

func (o *output) send(p *part) {
	if o.uploads == nil || p.Path == "" {
		return
	}
	o.uploads.Go(func() error {
		if err := o.ctx.Err(); err != nil {
			return &StorageError{Op: "upload state segment " + p.name, Err: err}
		}
		faultpoint.Hit(faultpoint.StateWritten)
		o.f.core.files.hold(p.name, o.f.epoch) // before: an upload that is given up may be carried out all the same
		if err := o.f.core.cfg.Segments.Upload(o.ctx, p.Path, p.name, p.Size, p.CRC32C); err != nil {
			return &StorageError{Op: "upload state segment " + p.name, Err: err}
		}
		faultpoint.Hit(faultpoint.StateUploaded)
		p.stored.Store(true)
		return nil
	})
}

func (o *output) add(key, value []byte, tombstone bool, stamp int64) error {
	if o.w != nil && o.full(key) {
		if err := o.end(nil); err != nil {
			return err
		}
	}
	if o.w == nil {
		if err := o.begin(); err != nil {
			return err
		}
	}
	var err error
	if tombstone {
		err = o.w.Add(key, nil, true)
	} else {
		err = o.w.AddStamped(key, value, stamp)
	}
	if err != nil {
		return &StorageError{Op: "write state segment", Err: err}
	}
	return nil
}

// full reports whether key belongs in the next segment.
func (o *output) full(key []byte) bool {
	size := o.w.Size()
	return size >= o.f.core.limits.hard || size >= o.piece && o.w.LastGroup() != segment.Group(key)
}

func (o *output) begin() error {
	if o.uploads != nil && o.ctx.Err() != nil { // what is written now would be for nothing
		if err := o.uploads.Wait(); err != nil {
			return err
		}
		return &StorageError{Op: "write state segment", Err: o.ctx.Err()}
	}
	f := o.f
	path := filepath.Join(f.core.cfg.Dir, fmt.Sprintf("%d-%d.segment", f.checkpoint, f.seq))
	if err := os.MkdirAll(f.core.cfg.Dir, 0o755); err != nil {
		return &StorageError{Op: "write state segment", Err: err}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &StorageError{Op: "write state segment", Err: err}
	}
	o.name = fmt.Sprintf("%s/%d-%d", f.core.cfg.NamePrefix, f.checkpoint, f.seq)
	f.seq++
	o.w = segment.NewWriter(path, f.core.limits.inline, f.core.filterLen)
	return nil
}

func (o *output) end(drops []segment.Drop) error {
	result, err := o.w.Finish(drops)
	if err != nil {
		err = &StorageError{Op: "write state segment", Err: err}
		return errors.Join(err, o.abort())
	}
	o.w = nil
	p := &part{Result: result, name: o.name}
	o.parts = append(o.parts, p)
	o.send(p)
	return nil
}

func (o *output) abort() error {
	w := o.w
	o.w = nil
	return w.Abort()
}

// finish ends the run. Drops are in a part before all rows, since they hide what is in older segments.
func (o *output) finish(drops []segment.Drop) ([]*part, error) {
	if len(drops) > 0 && len(o.parts) > 0 {
		if err := o.end(nil); err != nil {
			return nil, err
		}
		if err := o.begin(); err != nil {
			return nil, err
		}
		if err := o.end(drops); err != nil {
			return nil, err
		}
		last := len(o.parts) - 1
		o.parts = append([]*part{o.parts[last]}, o.parts[:last]...)
		return o.parts, nil
	}
	if o.w == nil && len(drops) > 0 {
		if err := o.begin(); err != nil {
			return nil, err
		}
	}
	if o.w != nil {
		if err := o.end(drops); err != nil {
			return nil, err
		}
	}
	return o.parts, nil
}

func (o *output) bytes() (n uint64) {
	for _, p := range o.parts {
		n += p.Size
	}
	return n
}

// upload waits until the run is durable and returns the list with it at the end.
func (o *output) upload(ctx context.Context, before []*snapshotv1.Segment, base bool) ([]*snapshotv1.Segment, error) {
	if o.uploads == nil {
		o.uploadTo(ctx)
	}
	if err := o.uploads.Wait(); err != nil {
		return nil, err
	}
	list := slices.Clone(before)
	for _, p := range o.parts {
		groups := o.f.core.cfg.KeyGroups
		if p.Drops == 0 {
			groups = p.Groups // drops count for all groups, rows for their own
		}
		s := &snapshotv1.Segment{
			Size: p.Size, Crc32C: p.CRC32C, FormatVersion: p.Format, KeyGroups: protoRange(groups),
			Checkpoint: o.f.checkpoint, Base: base, Inline: p.Inline, Entries: p.Entries, Sha256: p.SHA256,
		}
		if p.Path != "" {
			s.Name = p.name
		}
		list = append(list, s)
	}
	return list, nil
}

// discard ends the uploads, waits for them, and removes the local files that are not in the store's hands.
func (o *output) discard() error {
	if o.uploads != nil {
		o.cancel()
		_ = o.uploads.Wait() // who writes the run has the error, or another
	}
	var errs []error
	if o.w != nil {
		errs = append(errs, o.abort())
	}
	for _, p := range o.parts {
		if p.Path == "" || p.stored.Load() {
			continue
		}
		if err := os.Remove(p.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	o.parts = nil
	return errors.Join(errs...)
}
