package statebackend

import (
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
)

// ShrinkLimits makes b cut and merge segments at small sizes, so that small states go every way.
func ShrinkLimits[K comparable](b *Backend[K]) {
	b.core.limits = limits{inline: 256, soft: 64, hard: 4 << 10, pieces: 4, maxRuns: 3, fan: 3, maxDepth: 5, maxSegments: 64, sweepFrom: 150, step: 64, smallState: 100, smallDeltas: 32, minRoom: 1, delta: 500}
}

// Evicting reports whether rows of b may be in segments only.
func Evicting[K comparable](b *Backend[K]) bool { return b.core.mode == partial }

// Loading reports whether a loader brings rows of b.
func Loading[K comparable](b *Backend[K]) bool { return b.core.mode == loading && b.core.stop != nil }

// Held returns the number of entries in the tables of b.
func Held[K comparable](b *Backend[K]) (n int) {
	for _, d := range b.core.states {
		n += d.state.held()
	}
	return n
}

// Plan is where merging begins with the default limits.
func Plan(segments []*snapshotv1.Segment, delta uint64) int {
	if defaultLimits.newBase(segments, delta) {
		return 0
	}
	return defaultLimits.tiers(segments, delta)
}

// Sweeping reports whether a new base is being made range by range.
func Sweeping[K comparable](b *Backend[K]) bool { return b.core.sweep.parts > 0 }

// Loaded reports whether b has every restored row in memory.
func Loaded[K comparable](b *Backend[K]) bool { return b.core.mode == resident }

// Remembered returns how many rows of s are in memory, tombstones included.
func Remembered[K comparable, V any](s *Value[K, V]) int { return s.t.rows.len() }

// ScaleLimits divides the default sizes of b by n, and keeps all segments in the snapshot; without sweeps a base is always made at once.
func ScaleLimits[K comparable](b *Backend[K], n uint64, sweeps bool) {
	l := &b.core.limits
	l.inline, l.soft, l.hard, l.sweepFrom, l.step = 1<<30, l.soft/n, l.hard/n, l.sweepFrom/n, l.step/n
	l.smallState, l.smallDeltas = l.smallState/n, l.smallDeltas/n
	if !sweeps {
		l.sweepFrom = 1 << 40
	}
}

// Remembers reports whether k's row is in memory.
func Remembers[K comparable, V any](s *Value[K, V], k K) bool { return s.t.rows.has(k) }

// Clip is the key groups of a segment with those of first to last only.
func Clip(s *snapshotv1.Segment, first, last int) (*snapshotv1.KeyGroupRange, bool) {
	part, ok := clip(s, keygroup.Range{First: first, Last: last})
	return part.GetKeyGroups(), ok
}

// Unfinished reports whether a written snapshot is in the middle of a sweep.
func Unfinished(f *Frozen) bool { return f.after.sweep.parts > 0 }

// CountEveryRow makes few useless rows of b worth a new base, and bounds the size up to which segments travel by value.
func CountEveryRow[K comparable](b *Backend[K], inline int) {
	b.core.limits.wasteRows, b.core.limits.inline = 10, inline
}

// Indexed returns what the segments that b reads from take in memory, and what b takes all its memory for, in bytes.
func Indexed[K comparable](b *Backend[K]) (segments, all int64) {
	return b.core.chain.held, b.core.used()
}
