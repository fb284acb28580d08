package inspect

import (
	"bytes"
	"context"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
)

// Summary is what there is of one state of one operator, over all of its instances.
type Summary struct {
	Operator string `json:"operator"`
	State    string `json:"state"`
	Kind     string `json:"kind"`
	KeyCodec string `json:"keyCodec,omitempty"`
	Codec    string `json:"valueCodec,omitempty"`
	// TTL is the time to live in milliseconds, and EventTime its kind; of states that have one. What has expired is not counted.
	TTL       int64 `json:"ttlMs,omitempty"`
	EventTime bool  `json:"eventTime,omitempty"`
	// Keys is the number of keys of a value, list or map; windows and timers count rows only.
	Keys uint64 `json:"keys,omitempty"`
	Rows uint64 `json:"rows"`
	// Bytes of keys and values, encoded.
	Bytes uint64 `json:"bytes"`
}

// Summaries reads all rows and returns what there is, in the order of operators and states.
func (s *Snapshot) Summaries(ctx context.Context) ([]*Summary, error) {
	var all []*Summary
	byName := make(map[[2]string]*Summary)
	of := func(operator, state string, fill func(*Summary)) *Summary {
		m := byName[[2]string{operator, state}]
		if m == nil {
			m = &Summary{Operator: operator, State: state}
			fill(m)
			byName[[2]string{operator, state}] = m
			all = append(all, m)
		}
		return m
	}
	err := s.operators(ctx, func(scope statebackend.SegmentStore, _ *snapshotv1.TaskSnapshot, op *snapshotv1.OperatorSnapshot) error {
		for _, list := range op.GetOperatorStates() {
			m := of(op.GetUid(), list.GetName(), func(m *Summary) { m.Kind = kindOperator })
			for _, e := range list.GetEntries() {
				m.Rows++
				m.Bytes += uint64(len(e.GetKey()) + len(e.GetValue()))
			}
		}
		schema := func(d *snapshotv1.StateSchema) *Summary {
			return of(op.GetUid(), d.GetName(), func(m *Summary) {
				m.Kind, m.KeyCodec, m.Codec = d.GetKind(), d.GetKeyCodec(), d.GetValueCodec()
				m.TTL, m.EventTime = d.GetExpiry().GetTtlMs(), d.GetExpiry().GetTtlMs() > 0 && d.GetExpiry().GetEventTime()
			})
		}
		for _, d := range op.GetKeyed().GetSchemas() {
			if d.GetName() != "" {
				schema(d) // also one without rows
			}
		}
		if op.GetKeyed() == nil {
			return nil
		}
		var last []byte
		var lastOf *snapshotv1.StateSchema
		return statebackend.Scan(ctx, scope, op.GetKeyed(), func(row statebackend.Row) error {
			if row.Expired {
				return nil
			}
			m := schema(row.Schema)
			m.Rows++
			m.Bytes += uint64(len(row.Key) + len(row.MapKey) + len(row.Value))
			switch m.Kind {
			case "window", "timer":
				return nil
			}
			// Rows of one key follow one another.
			if row.Schema != lastOf || !bytes.Equal(last, row.Key) {
				m.Keys++
				last, lastOf = append(last[:0], row.Key...), row.Schema
			}
			return nil
		})
	})
	return all, err
}
