package statebackend

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend/segment"
)

// Row is one row of a state as a snapshot holds it, undecoded. Its bytes are valid until the next one.
type Row struct {
	Schema *snapshotv1.StateSchema
	// Namespace is a window's pane or a timer's time, in milliseconds since the epoch.
	Namespace int64
	Key       []byte
	// MapKey is of states of kind "map" only.
	MapKey []byte
	Value  []byte
	// Expired tells that the state's time to live was over at the time of the snapshot. Such rows are there until a merge leaves them out.
	Expired bool

	stamp   stamp
	horizon *horizon // nil for a state that never had a time to live
}

// ExpiresAt returns when the row expires, in milliseconds since the epoch and in the kind of time that the schema tells: a list when its
// last element does. ok is false for a row that lives forever, and for one that counts from a clock which has not been known yet.
func (r Row) ExpiresAt() (at int64, ok bool) {
	ttl := r.Schema.GetExpiry().GetTtlMs()
	if r.horizon == nil || ttl == 0 {
		return 0, false
	}
	at = r.horizon.countsFrom(r.stamp)
	return at + ttl, at != math.MaxInt64
}

// Scan calls fn for every row of a snapshot, those of one key group after the other, until it returns an error. It needs no operator and
// none of its types.
func Scan(ctx context.Context, store SegmentStore, snapshot *snapshotv1.KeyedSnapshot, fn func(Row) error) (err error) {
	open := files{store: store}
	sources, err := open.acquire(ctx, snapshot.GetSegments())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sources.release()) }()
	schemas, horizons := make(map[uint16]*snapshotv1.StateSchema), make(map[uint16]*horizon)
	for _, s := range snapshot.GetSchemas() {
		if s.GetKind() != kindDropped {
			schemas[uint16(s.GetStateId())] = s
			if s.GetExpiry() != nil {
				h := horizonOf(s.GetExpiry())
				horizons[uint16(s.GetStateId())] = &h
			}
		}
	}
	m, err := segment.NewMerge(sources.list, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	var scratch []byte
	n := 0
	for m.Seek(nil); m.Valid(); m.Next() {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if len(m.Key()) < segment.PrefixSize {
			return fmt.Errorf("%w: row without a state", segment.ErrCorrupt)
		}
		s := schemas[segment.State(m.Key())]
		if s == nil {
			continue // of a state that was dropped
		}
		row := Row{Schema: s, Key: m.Key()[segment.PrefixSize:], Value: m.Value(), stamp: stamp(m.Stamp())}
		if row.horizon = horizons[segment.State(m.Key())]; row.horizon != nil {
			row.Expired = row.horizon.gone(row.stamp)
		}
		switch s.GetKind() {
		case kindPanes, kindTimer:
			if len(row.Key) < segment.NamespaceSize {
				return fmt.Errorf("%w: row without a namespace", segment.ErrCorrupt)
			}
			row.Namespace, row.Key = segment.Namespace(m.Key()), row.Key[segment.NamespaceSize:]
		case kindMap:
			if scratch, row.MapKey, err = codec.CutEscaped(scratch[:0], row.Key); err != nil {
				return fmt.Errorf("%w: row of a map: %w", segment.ErrCorrupt, err)
			}
			row.Key = scratch
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return m.Err()
}

// Elements takes the value of a row of kind "list" apart, and leaves out the elements that have expired, unless all have.
func (r Row) Elements() (elements [][]byte, err error) {
	for src := r.Value; len(src) > 0; {
		element, rest, err := cutElement(src)
		if err != nil {
			return nil, err
		}
		src = rest
		if r.stamp != noStamp {
			var own stamp
			if own, element, err = cutStamp(element, r.stamp); err != nil {
				return nil, err
			}
			if !r.Expired && r.horizon != nil && r.horizon.gone(own) {
				continue
			}
		}
		elements = append(elements, element)
	}
	return elements, nil
}
