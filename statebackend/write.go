package statebackend

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/statebackend/segment"
)

// write makes the segments of the snapshot and returns the whole list. Local files it leaves behind only in the store's hands.
func (f *Frozen) write(ctx context.Context) (_ version, err error) {
	if err := faultpoint.Err(faultpoint.StateDue); err != nil {
		return version{}, &StorageError{Op: "write state", Err: err}
	}
	delta := f.newOutput(math.MaxUint32)
	defer func() { err = errors.Join(err, delta.discard()) }()
	if len(f.before.segments) == 0 {
		delta.uploadTo(ctx) // there is nothing that it could be merged with
	}
	drops, err := f.writeDelta(ctx, delta)
	if err != nil {
		return version{}, err
	}
	parts, err := delta.finish(drops)
	if err != nil {
		return version{}, err
	}
	v, limits := f.before, f.core.limits
	whole := f.full
	if v.sweep.parts == 0 && !whole && f.live < 0 && f.horizons != nil {
		if f.live, err = f.estimateLive(ctx); err != nil {
			return v, err
		}
	}
	if v.sweep.parts == 0 && !whole && (limits.newBase(v.segments, delta.bytes()) || limits.wasteful(v.segments, parts, f.live)) {
		if whole = v.bytes() <= limits.sweepFrom; !whole {
			v = v.begin(f.core.cfg.KeyGroups)
		}
	}
	if v.sweep.parts > 0 && !whole {
		if v, err = f.advance(ctx, v, delta.bytes()); err != nil {
			return v, err
		}
	}
	from := 0
	if !whole {
		from = v.tail() + limits.tiers(v.segments[v.tail():], delta.bytes())
	}
	switch {
	case len(parts) == 0 && (from == len(v.segments) || len(v.segments) == 0):
		return v, nil
	case from == len(v.segments):
		// With nothing before it, a delta is a base.
		v.segments, err = delta.upload(ctx, v.segments, from == 0)
		return v, err
	}
	if whole {
		v.sweep = sweep{}
	}
	merged := f.newOutput(version{segments: v.segments[from:]}.bytes())
	defer func() { err = errors.Join(err, merged.discard()) }()
	merged.uploadTo(ctx)
	drops, err = f.merge(ctx, merged, v.segments[from:], parts, from > 0)
	if err != nil {
		return v, err
	}
	if _, err := merged.finish(drops); err != nil {
		return v, err
	}
	v.segments, err = merged.upload(ctx, v.segments[:from], from == 0)
	return v, err
}

// merge writes the rows of segments and of the delta's parts as one run. Without older segments before them, tombstones and drops have
// nothing left to hide.
func (f *Frozen) merge(
	ctx context.Context, out *output, segments []*snapshotv1.Segment, parts []*part, older bool,
) (drops []segment.Drop, err error) {
	opened, err := f.core.files.acquire(ctx, segments)
	if err != nil {
		// All rows are in memory, so even a lost file fails no more than this checkpoint.
		return nil, &StorageError{Op: "merge state segments", Err: err}
	}
	defer func() { err = errors.Join(err, opened.release()) }()
	sources := slices.Clone(opened.list)
	for _, p := range parts {
		s, err := openPart(p)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		sources = append(sources, segment.Source{Segment: s, Groups: f.core.cfg.KeyGroups})
	}
	m, err := segment.NewMerge(sources, older)
	if err != nil {
		return nil, &StorageError{Op: "merge state segments", Err: err}
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var trimmed []byte
	var state *declaration // of the row before
	var expired *horizon
	n := 0
	for m.Seek(segment.AppendPrefix(nil, f.core.cfg.KeyGroups.First, 0)); m.Valid(); m.Next() {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return nil, &StorageError{Op: "merge state segments", Err: ctx.Err()}
		}
		if id := segment.State(m.Key()); state == nil || state.id != id {
			if state = f.core.byID[id]; state == nil {
				continue // dropped state
			}
			expired = f.horizons[id]
		}
		value, dead := m.Value(), m.Tombstone()
		if h := expired; h != nil && !dead {
			if dead = h.gone(stamp(m.Stamp())); dead && !older {
				continue
			}
			if !dead && state.kind == kindList && m.Stamp() != segment.NoStamp {
				if trimmed, err = trimList(trimmed[:0], value, stamp(m.Stamp()), h); err != nil {
					return nil, f.core.decodeError(m.Key(), err)
				}
				value = trimmed
			}
		}
		if err := out.add(m.Key(), value, dead, m.Stamp()); err != nil {
			return nil, err
		}
	}
	if err := opened.distrust(m.Err()); err != nil {
		return nil, &StorageError{Op: "merge state segments", Err: err}
	}
	if older {
		drops = unionOfDrops(sources)
	}
	return drops, nil
}

func openPart(p *part) (*segment.Segment, error) {
	if p.Path == "" {
		return segment.OpenInline(p.Inline)
	}
	s, err := segment.Open(p.Path, p.Size)
	if err != nil {
		return nil, &StorageError{Op: "open state segment", Err: err}
	}
	return s, nil
}

func unionOfDrops(sources []segment.Source) (drops []segment.Drop) {
	for _, s := range sources {
		drops = append(drops, s.Segment.Drops()...)
	}
	slices.SortFunc(drops, func(a, b segment.Drop) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Namespace, b.Namespace))
	})
	return slices.Compact(drops)
}
