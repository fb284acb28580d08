package statebackend

import (
	"context"
	"errors"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
)

// version is the segments of a snapshot, oldest first, and how far the making of a new base has come.
type version struct {
	segments []*snapshotv1.Segment
	sweep    sweep
}

// sweep is a merge of a base and its deltas into a new base, one range of key groups with each snapshot, so that no snapshot writes much
// more than its changes. The list of segments is then: the parts of the new base, what is merged, clipped to the key groups from next
// on, and what was added since.
type sweep struct {
	done  int    // segments of the new base
	parts int    // segments being merged; 0 when there is no sweep
	next  int    // first key group that is still to be merged
	bytes uint64 // of what is merged, all key groups
}

// tail returns the index of the first segment that was added since the sweep began; 0 without one.
func (v version) tail() int { return v.sweep.done + v.sweep.parts }

func (v version) bytes() (n uint64) {
	for _, s := range v.segments {
		n += s.GetSize()
	}
	return n
}

// base is the size of what is base.
func (v version) base() (n uint64) {
	for _, s := range v.segments {
		if s.GetBase() {
			n += s.GetSize()
		}
	}
	return n
}

// begin starts a sweep over all segments.
func (v version) begin(own keygroup.Range) version {
	v.sweep = sweep{parts: len(v.segments), next: own.First, bytes: v.bytes()}
	return v
}

// advance merges the next range of key groups. delta is the size of the snapshot's changes: a sweep keeps pace with them.
func (f *Frozen) advance(ctx context.Context, v version, delta uint64) (_ version, err error) {
	own, s := f.core.cfg.KeyGroups, v.sweep
	perGroup := s.bytes/uint64(own.Len()) + 1
	target := max(f.core.limits.step, f.core.limits.pace*delta)
	through := keygroup.Range{First: s.next, Last: min(own.Last, s.next+int((target-1)/perGroup))}

	out := f.newOutput(s.bytes)
	defer func() { err = errors.Join(err, out.discard()) }()
	out.uploadTo(ctx)
	merged := v.segments[s.done:v.tail()]
	var within []*snapshotv1.Segment
	for _, m := range merged {
		if part, ok := clip(m, through); ok {
			within = append(within, part)
		}
	}
	if _, err := f.merge(ctx, out, within, nil, false); err != nil {
		return v, err
	}
	if _, err := out.finish(nil); err != nil {
		return v, err
	}
	list, err := out.upload(ctx, v.segments[:s.done], true)
	if err != nil {
		return v, err
	}
	next := sweep{done: len(list), next: through.Last + 1, bytes: s.bytes}
	if next.next <= own.Last {
		for _, m := range merged {
			if rest, ok := clip(m, keygroup.Range{First: next.next, Last: own.Last}); ok {
				list = append(list, rest)
			}
		}
		next.parts = len(list) - next.done
	}
	if next.parts == 0 {
		next = sweep{}
	}
	return version{segments: append(list, v.segments[v.tail():]...), sweep: next}, nil
}

// clip returns s with the rows of some key groups only; false when there are none.
func clip(s *snapshotv1.Segment, groups keygroup.Range) (*snapshotv1.Segment, bool) {
	own := rangeOf(s.GetKeyGroups())
	both := keygroup.Range{First: max(own.First, groups.First), Last: min(own.Last, groups.Last)}
	if both.Len() <= 0 {
		return nil, false
	}
	return withGroups(s, both), true
}
