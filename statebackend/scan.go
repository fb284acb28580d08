package statebackend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

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
	schemas := make(map[uint16]*snapshotv1.StateSchema)
	for _, s := range snapshot.GetSchemas() {
		if s.GetKind() != kindDropped {
			schemas[uint16(s.GetStateId())] = s
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
		row := Row{Schema: s, Key: m.Key()[segment.PrefixSize:], Value: m.Value()}
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

// Elements takes the value of a row of kind "list" apart.
func (r Row) Elements() (elements [][]byte, err error) {
	for src := r.Value; len(src) > 0; {
		size, n := binary.Uvarint(src)
		if n <= 0 || size > uint64(len(src)-n) {
			return nil, fmt.Errorf("%w: list", segment.ErrCorrupt)
		}
		elements = append(elements, src[n:n+int(size)])
		src = src[n+int(size):]
	}
	return elements, nil
}
