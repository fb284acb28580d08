// Package keyed holds what the operators with keyed state share: where their state lives, and what their snapshots look like.
package keyed

import (
	"context"
	"fmt"
	"net/url"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
)

// Config returns the backend configuration of an instance.
func Config(rt *operator.Runtime) statebackend.Config {
	cfg := statebackend.Config{
		Operator:       rt.Operator.UID,
		KeyGroups:      rt.KeyGroups,
		MaxParallelism: rt.MaxParallelism,
		Dir:            rt.Dir,
		NamePrefix: fmt.Sprintf("%s/jobs/%s/state/%d/%s-%d/%s", rt.ClusterID, rt.JobID, rt.Attempt,
			url.PathEscape(rt.Vertex), rt.Subtask, url.PathEscape(rt.Operator.UID)),
		Segments:          rt.Segments,
		AllowDroppedState: rt.AllowDroppedState,
		Post:              rt.Post,
		Logger:            rt.Logger,
		MemoryBudget:      rt.StateMemory,
	}
	for _, s := range rt.Restored {
		if s.GetKeyed() != nil {
			cfg.Restored = append(cfg.Restored, s.GetKeyed())
		}
	}
	return cfg
}

// Watermark returns the watermark that an instance starts from: the lowest of the restored ones, where a snapshot without one
// counts as none.
func Watermark(restored []*snapshotv1.OperatorSnapshot) int64 {
	if len(restored) == 0 {
		return operator.MinWatermark
	}
	lowest := operator.MaxWatermark
	for _, s := range restored {
		if s.Watermark == nil {
			return operator.MinWatermark
		}
		lowest = min(lowest, s.GetWatermark())
	}
	return lowest
}

// Snapshot returns the snapshot of an operator that is at watermark wm.
func Snapshot(uid string, wm int64) *snapshotv1.OperatorSnapshot {
	s := &snapshotv1.OperatorSnapshot{Uid: uid}
	if wm != operator.MinWatermark {
		s.Watermark = &wm
	}
	return s
}

// Finish returns the second half of a snapshot whose keyed state is frozen.
func Finish(s *snapshotv1.OperatorSnapshot, frozen *statebackend.Frozen) operator.Finish {
	return func(ctx context.Context) (*snapshotv1.OperatorSnapshot, error) {
		state, err := frozen.Write(ctx)
		if err != nil {
			return nil, err
		}
		s.Keyed = state
		return s, nil
	}
}

// Expect tells a backend of the keys of records to come. It returns keys, which is memory to use, for the next time.
func Expect[K comparable, T any](b *statebackend.Backend[K], keys []K, vs []T, key func(T) K) []K {
	if !b.Expects() {
		return keys
	}
	keys = keys[:0]
	for _, v := range vs {
		keys = append(keys, key(v))
	}
	b.Expect(keys)
	clear(keys) // keeps nothing alive
	return keys
}

// pause is how long a record waits while changed state exceeds the memory budget: long enough for the state to grow slowly, and short
// enough for the barrier behind to come through.
const pause = time.Millisecond

// Brake slows an instance down while its changed state exceeds the memory budget. The zero value is ready.
type Brake struct{ end func() }

// Press waits a little. The caller has found that the backend is over its budget; the wait stays visible until Release.
func (b *Brake) Press(rt *operator.Runtime, p statebackend.Pressure) {
	if b.end == nil {
		what := fmt.Sprintf("a checkpoint to be completed, since changed state takes %d bytes more than state_memory leaves for it (%d bytes)",
			p.Excess, p.Budget)
		rt.Logger.Warn("slowed down by the memory budget", "excess", p.Excess, "budget", p.Budget)
		b.end = rt.Stats.Waits.Begin(what)
	}
	time.Sleep(pause)
}

// Release tells that the state is within the budget again.
func (b *Brake) Release() {
	if b.end != nil {
		b.end()
		b.end = nil
	}
}
