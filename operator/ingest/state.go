package ingest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator/watermark"
	"github.com/weir-stream/weir/sources"
)

// Names and versions of the operator states of a source. The value of a position is the source's own; that of a largest timestamp
// is a zigzag varint.
const (
	positionsState   = "positions"
	positionsVersion = 1
	largestState     = "largest-timestamps"
	largestVersion   = 1
)

// restoredState is what a snapshot knew of all splits.
type restoredState struct {
	positions []sources.Position
	largest   map[string]int64
}

func encodeState(positions []sources.Position, tracker *watermark.Tracker) []*snapshotv1.OperatorState {
	ps := &snapshotv1.OperatorState{Name: positionsState, Version: positionsVersion}
	for _, p := range positions {
		ps.Entries = append(ps.Entries, &snapshotv1.OperatorStateEntry{Key: p.Key, Value: p.Value})
	}
	ls := &snapshotv1.OperatorState{Name: largestState, Version: largestVersion}
	tracker.Largest(func(key string, largest int64) {
		ls.Entries = append(ls.Entries, &snapshotv1.OperatorStateEntry{Key: key, Value: binary.AppendVarint(nil, largest)})
	})
	slices.SortFunc(ls.Entries, func(a, b *snapshotv1.OperatorStateEntry) int { return strings.Compare(a.Key, b.Key) })
	return []*snapshotv1.OperatorState{ps, ls}
}

func decodeState(restored []*snapshotv1.OperatorSnapshot) (restoredState, error) {
	r := restoredState{largest: make(map[string]int64)}
	for _, s := range restored {
		for _, st := range s.GetOperatorStates() {
			switch {
			case st.GetName() == positionsState && st.GetVersion() == positionsVersion:
				for _, e := range st.GetEntries() {
					r.positions = append(r.positions, sources.Position{Key: e.GetKey(), Value: e.GetValue()})
				}
			case st.GetName() == largestState && st.GetVersion() == largestVersion:
				for _, e := range st.GetEntries() {
					largest, n := binary.Varint(e.GetValue())
					if n != len(e.GetValue()) || n <= 0 {
						return r, fmt.Errorf("%w %q: the largest timestamp of split %q is malformed", ErrState, s.GetUid(), e.GetKey())
					}
					if known, ok := r.largest[e.GetKey()]; !ok || largest > known {
						r.largest[e.GetKey()] = largest
					}
				}
			default:
				return r, fmt.Errorf("%w %q: %q version %d is unknown to this version; restore with the version that wrote it",
					ErrState, s.GetUid(), st.GetName(), st.GetVersion())
			}
		}
	}
	return r, nil
}
