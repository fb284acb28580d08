package statebackend

import snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"

// ShrinkLimits makes b cut and merge segments at small sizes, so that small states go every way.
func ShrinkLimits[K comparable](b *Backend[K]) {
	b.core.limits = limits{inline: 256, soft: 2 << 10, hard: 4 << 10, maxRuns: 3, fan: 3, maxSegments: 64, sweepFrom: 300, step: 64, smallState: 200, smallDeltas: 256, minRoom: 1}
}

// Evicting reports whether rows of b may be in segments only.
func Evicting[K comparable](b *Backend[K]) bool { return b.core.mode == partial }

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
func Remembered[K comparable, V any](s *Value[K, V]) int { return len(s.t.rows) }
