package windowing

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
)

// The operator state of windows in processing time: how far their time had come, as a zigzag varint of milliseconds since the epoch.
// Without it a restore would fire a sliding window again with the panes that it shares with later ones.
const (
	firedState   = "fired"
	firedVersion = 1
	firedKey     = "until" // an entry with a key reaches every subtask after a change of parallelism
)

// ErrState is returned when the restored state of a window operator cannot be read.
var ErrState = errors.New("state of a window operator")

// fired tells for the key groups of an instance up to when windows in processing time have fired. Former subtasks had not all come
// equally far.
type fired struct {
	parts []firedPart
	// least and most are the bounds of the parts; windows up to least have fired for all keys.
	least, most int64
}

type firedPart struct {
	groups keygroup.Range
	until  int64
}

// restoreFired reads what the former subtasks of an instance's key groups have fired.
func restoreFired(restored []*snapshotv1.OperatorSnapshot, own keygroup.Range) (fired, error) {
	f := fired{least: math.MaxInt64, most: operator.MinWatermark}
	for _, s := range restored {
		groups := s.GetKeyed().GetKeyGroups()
		p := firedPart{
			groups: keygroup.Range{First: int(groups.GetFirst()), Last: int(groups.GetLast())}, until: operator.MinWatermark,
		}
		if s.GetKeyed() == nil || !p.groups.Overlaps(own) {
			continue
		}
		for _, state := range s.GetOperatorStates() {
			if state.GetName() != firedState {
				continue
			}
			if state.GetVersion() != firedVersion || len(state.GetEntries()) != 1 {
				return f, fmt.Errorf("%w %q: %q version %d is unknown to this version; restore with the version that wrote it",
					ErrState, s.GetUid(), firedState, state.GetVersion())
			}
			until, n := binary.Varint(state.GetEntries()[0].GetValue())
			if n <= 0 || n != len(state.GetEntries()[0].GetValue()) {
				return f, fmt.Errorf("%w %q: %q is malformed", ErrState, s.GetUid(), firedState)
			}
			p.until = until
		}
		f.parts = append(f.parts, p)
		f.least, f.most = min(f.least, p.until), max(f.most, p.until)
	}
	if len(f.parts) == 0 {
		f.least = operator.MinWatermark
	}
	return f, nil
}

// until returns up to when windows have fired for a key group.
func (f *fired) until(group int) int64 {
	for _, p := range f.parts {
		if p.groups.Contains(group) {
			return p.until
		}
	}
	return f.least
}

// saveFired returns the operator state of an instance whose time has come to now.
func saveFired(now int64) []*snapshotv1.OperatorState {
	if now == operator.MinWatermark {
		return nil
	}
	return []*snapshotv1.OperatorState{{
		Name: firedState, Version: firedVersion,
		Entries: []*snapshotv1.OperatorStateEntry{{Key: firedKey, Value: binary.AppendVarint(nil, now)}},
	}}
}
