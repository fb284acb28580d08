package statebackend

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
)

// kindDropped marks a number whose state was dropped: older segments may still have its rows, so it is never given out again.
const kindDropped = "dropped"

// adopt matches the declared states with the restored ones by name and numbers them.
func (c *core) adopt() error {
	restored, err := restoredSchemas(c.cfg.Operator, c.cfg.Restored)
	if err != nil {
		return err
	}
	var errs []error
	last := 0
	for _, s := range restored {
		last = max(last, int(s.GetStateId()))
	}
	seen := map[string]bool{}
	for _, d := range c.states {
		if seen[d.name] {
			errs = append(errs, fmt.Errorf("operator %s declares two states named %q", c.cfg.Operator, d.name))
		}
		seen[d.name] = true
		i := slices.IndexFunc(restored, func(s *snapshotv1.StateSchema) bool {
			return s.GetKind() != kindDropped && (s.GetName() == d.name || slices.Contains(d.former, s.GetName()))
		})
		if i < 0 {
			last++
			d.id = uint16(last)
			continue
		}
		seen[restored[i].GetName()] = true
		d.id = uint16(restored[i].GetStateId())
		errs = append(errs, matchSchema(c.cfg.Operator, restored[i], d.schema()))
		d.valueSchema = codec.UnionSchemas(d.valueSchema, restored[i].GetValueSchema())
	}
	if last > math.MaxUint16 {
		errs = append(errs, fmt.Errorf("operator %s has had more than %d states", c.cfg.Operator, math.MaxUint16))
	}
	for _, s := range restored {
		if s.GetKind() != kindDropped && seen[s.GetName()] {
			continue
		}
		if s.GetKind() != kindDropped && !c.cfg.AllowDroppedState {
			errs = append(errs, fmt.Errorf("%w: %w: operator %s does not declare the state %q; declare it again, or allow dropped state with --allow-dropped-state, or WEIR_ALLOW_DROPPED_STATE=1 in a local run",
				ErrSchema, ErrDroppedState, c.cfg.Operator, s.GetName()))
		}
		c.dropped = append(c.dropped, &snapshotv1.StateSchema{StateId: s.GetStateId(), Kind: kindDropped})
	}
	return errors.Join(errs...)
}

// restoredSchemas returns the schemas of all snapshots, which number their states alike.
func restoredSchemas(operator string, snapshots []*snapshotv1.KeyedSnapshot) (all []*snapshotv1.StateSchema, err error) {
	for _, snapshot := range snapshots {
		for _, s := range snapshot.GetSchemas() {
			i := slices.IndexFunc(all, func(o *snapshotv1.StateSchema) bool { return o.GetStateId() == s.GetStateId() })
			if i < 0 {
				all = append(all, s)
				continue
			}
			if all[i].GetName() != s.GetName() {
				return nil, fmt.Errorf("%w: operator %s: state number %d is %q in one snapshot and %q in another",
					ErrSchema, operator, s.GetStateId(), all[i].GetName(), s.GetName())
			}
			if err := matchSchema(operator, all[i], s); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// matchSchema returns an error unless state written with the restored schema can be read with the declared one.
func matchSchema(operator string, restored, declared *snapshotv1.StateSchema) error {
	mismatch := func(what, was, is string) error {
		return fmt.Errorf("%w: operator %s, state %q: the %s was %s in the checkpoint and is %s in the job; "+
			"keep the type, or give the state another name and allow dropped state with --allow-dropped-state, or WEIR_ALLOW_DROPPED_STATE=1 in a local run", ErrSchema, operator, restored.GetName(), what, was, is)
	}
	switch {
	case restored.GetKind() != declared.GetKind():
		return mismatch("kind", restored.GetKind(), declared.GetKind())
	case restored.GetKeyCodec() != declared.GetKeyCodec():
		return mismatch("key codec", restored.GetKeyCodec(), declared.GetKeyCodec())
	case restored.GetValueCodec() != declared.GetValueCodec():
		return mismatch("value codec", restored.GetValueCodec(), declared.GetValueCodec())
	case restored.GetSchemaFingerprint() != declared.GetSchemaFingerprint():
		return mismatch("value type", fingerprint(restored), fingerprint(declared))
	}
	if at, was, is := codec.SchemaConflict(restored.GetValueSchema(), declared.GetValueSchema()); at != "" {
		return mismatch("type of "+at, was, is)
	}
	return nil
}

func fingerprint(s *snapshotv1.StateSchema) string {
	return fmt.Sprintf("%s with fingerprint %016x", s.GetValueCodec(), s.GetSchemaFingerprint())
}

// schemas returns the schemas for a snapshot.
func (c *core) schemas() []*snapshotv1.StateSchema {
	all := slices.Clone(c.dropped)
	for _, d := range c.states {
		s := d.schema()
		if d.expiry != nil {
			s.Expiry = d.expiry.schema(d.expiry.ttl)
		}
		all = append(all, s)
	}
	return all
}

// clipRestored returns the segments of the restored snapshots with the key groups of which the backend takes the rows.
func (c *core) clipRestored() (segments []*snapshotv1.Segment, err error) {
	own := c.cfg.KeyGroups
	covered := make([]bool, own.Len())
	for _, snapshot := range c.cfg.Restored {
		if n := int(snapshot.GetMaxParallelism()); n != c.cfg.MaxParallelism {
			return nil, fmt.Errorf("%w: operator %s: the checkpoint has %d key groups and the job %d; the maximum parallelism cannot change",
				ErrSchema, c.cfg.Operator, n, c.cfg.MaxParallelism)
		}
		part := rangeOf(snapshot.GetKeyGroups())
		for g := max(part.First, own.First); g <= min(part.Last, own.Last); g++ {
			if covered[g-own.First] {
				return nil, fmt.Errorf("%w: operator %s: two restored snapshots hold key group %d", ErrSchema, c.cfg.Operator, g)
			}
			covered[g-own.First] = true
		}
		for _, s := range snapshot.GetSegments() {
			groups := rangeOf(s.GetKeyGroups())
			clip := keygroup.Range{
				First: max(groups.First, part.First, own.First), Last: min(groups.Last, part.Last, own.Last),
			}
			if clip.Len() > 0 {
				segments = append(segments, withGroups(s, clip))
			}
		}
	}
	if i := slices.Index(covered, false); i >= 0 && len(c.cfg.Restored) > 0 {
		return nil, fmt.Errorf("%w: operator %s: no restored snapshot holds key group %d", ErrSchema, c.cfg.Operator, own.First+i)
	}
	return segments, nil
}

// withGroups returns a copy of s of which the rows of some key groups count.
func withGroups(s *snapshotv1.Segment, groups keygroup.Range) *snapshotv1.Segment {
	return &snapshotv1.Segment{
		Name: s.GetName(), Size: s.GetSize(), Crc32C: s.GetCrc32C(), FormatVersion: s.GetFormatVersion(), KeyGroups: protoRange(groups),
		Checkpoint: s.GetCheckpoint(), Base: s.GetBase(), Inline: s.GetInline(), Entries: s.GetEntries(), Sha256: s.GetSha256(),
	}
}

func rangeOf(r *snapshotv1.KeyGroupRange) keygroup.Range {
	return keygroup.Range{First: int(r.GetFirst()), Last: int(r.GetLast())}
}

func protoRange(r keygroup.Range) *snapshotv1.KeyGroupRange {
	return &snapshotv1.KeyGroupRange{First: uint32(r.First), Last: uint32(r.Last)}
}
