package statebackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/statebackend/segment"
)

// output writes one run of rows as segments of bounded size.
type output struct {
	f       *Frozen
	piece   uint64 // size after which a segment ends with its key group
	w       *segment.Writer
	parts   []segment.Result
	names   []string
	written []string // local paths not in the store's hands
}

// newOutput returns an empty run of about that many bytes.
func (f *Frozen) newOutput(bytes uint64) *output {
	return &output{f: f, piece: f.core.limits.piece(f.before.base(), bytes)}
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
	f := o.f
	path := filepath.Join(f.core.cfg.Dir, fmt.Sprintf("%d-%d.segment", f.checkpoint, f.seq))
	if err := os.MkdirAll(f.core.cfg.Dir, 0o755); err != nil {
		return &StorageError{Op: "write state segment", Err: err}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return &StorageError{Op: "write state segment", Err: err}
	}
	o.names = append(o.names, fmt.Sprintf("%s/%d-%d", f.core.cfg.NamePrefix, f.checkpoint, f.seq))
	f.seq++
	o.w = segment.NewWriter(path, f.core.limits.inline, f.core.filterLen)
	return nil
}

func (o *output) end(drops []segment.Drop) error {
	part, err := o.w.Finish(drops)
	if err != nil {
		err = &StorageError{Op: "write state segment", Err: err}
		return errors.Join(err, o.abort())
	}
	o.w = nil
	o.parts = append(o.parts, part)
	if part.Path != "" {
		o.written = append(o.written, part.Path)
	}
	return nil
}

func (o *output) abort() error {
	w := o.w
	o.w = nil
	return w.Abort()
}

// finish ends the run. Drops are in a part before all rows, since they hide what is in older segments.
func (o *output) finish(drops []segment.Drop) ([]segment.Result, error) {
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
		o.parts = append([]segment.Result{o.parts[last]}, o.parts[:last]...)
		o.names = append([]string{o.names[last]}, o.names[:last]...)
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

// upload makes the run durable and returns the list with it at the end.
func (o *output) upload(ctx context.Context, before []*snapshotv1.Segment, base bool) ([]*snapshotv1.Segment, error) {
	list := slices.Clone(before)
	for i, p := range o.parts {
		groups := o.f.core.cfg.KeyGroups
		if p.Drops == 0 {
			groups = p.Groups // drops count for all groups, rows for their own
		}
		s := &snapshotv1.Segment{
			Size: p.Size, Crc32C: p.CRC32C, FormatVersion: p.Format, KeyGroups: protoRange(groups),
			Checkpoint: o.f.checkpoint, Base: base, Inline: p.Inline, Entries: p.Entries, Sha256: p.SHA256,
		}
		if p.Path != "" {
			s.Name = o.names[i]
			faultpoint.Hit(faultpoint.StateWritten)
			if err := o.f.core.cfg.Segments.Upload(ctx, p.Path, s.Name, p.Size, p.CRC32C); err != nil {
				return nil, &StorageError{Op: "upload state segment " + s.Name, Err: err}
			}
			o.f.core.files.hold(s.Name, o.f.epoch)
			faultpoint.Hit(faultpoint.StateUploaded)
			o.written = slices.DeleteFunc(o.written, func(path string) bool { return path == p.Path })
		}
		list = append(list, s)
	}
	return list, nil
}

// discard removes the local files that were not uploaded.
func (o *output) discard() error {
	var errs []error
	if o.w != nil {
		errs = append(errs, o.abort())
	}
	for _, path := range o.written {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	o.written = nil
	return errors.Join(errs...)
}
