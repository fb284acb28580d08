package statebackend

import snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"

// limits are the sizes that decide how segments are cut and merged; sizes are in bytes.
type limits struct {
	// inline is the size up to which a segment travels by value.
	inline int
	// A segment ends with the next key group after a part of the state, soft at least, and anyhow at hard.
	soft, hard, pieces uint64
	// maxRuns is the number of runs from which on a small state is merged whole.
	maxRuns int
	// fan is how many deltas of like size become one; maxDepth is how many there may be of any size.
	fan, maxDepth int
	// maxSegments is a number of segments that is too large for handles.
	maxSegments int
	// sweepFrom is the size of a state from which on a new base is made range by range, with at least step bytes at a time.
	sweepFrom, step uint64
	// pace is how many times the changes of a snapshot its part of a sweep is.
	pace uint64
	// smallState is the size of a state below which merging everything costs next to nothing.
	smallState uint64
	// smallDeltas is the size of deltas that are never worth a new base.
	smallDeltas uint64
	// minRoom is the least number of entries that are added between two looks at the memory in use.
	minRoom int
	// delta is how much of a snapshot's changes is encoded at once; values beyond it are encoded one by one as they are written.
	delta uint64
	// wasteRows is how many useless rows are never worth a new base.
	wasteRows uint64
}

// defaultLimits keep segments below 128 MiB, Bloom filter included.
var defaultLimits = limits{
	inline: 16 << 10, soft: 1 << 20, hard: 112 << 20, pieces: 64, maxRuns: 8, fan: 24, maxDepth: 96, maxSegments: 512, sweepFrom: 64 << 20,
	step: 8 << 20, pace: 4, smallState: 4 << 20, smallDeltas: 64 << 10, minRoom: 64, delta: 32 << 20, wasteRows: 10_000,
}

// piece is the size after which a segment of a run ends. A sweep frees storage file by file, so each file is a small part of the state,
// and of the run unless that is a single delta.
func (l limits) piece(state, run uint64) uint64 {
	if state < l.sweepFrom {
		return l.sweepFrom / 4
	}
	return max(l.soft, min(state, run*8)/l.pieces)
}

// run is the segments that one checkpoint wrote, which lie side by side.
type run struct {
	first int // index of its first segment
	bytes uint64
	base  bool
}

func runsOf(segments []*snapshotv1.Segment) (runs []run) {
	for i, s := range segments {
		n := len(runs)
		if n == 0 || s.GetCheckpoint() != segments[i-1].GetCheckpoint() || s.GetBase() != runs[n-1].base {
			runs = append(runs, run{first: i, base: s.GetBase()})
			n++
		}
		runs[n-1].bytes += s.GetSize()
	}
	return runs
}

// wasteful reports whether most rows of a list are of no use any more, as after many keys have expired, so that a new base is worth its
// while: it has at most half as many rows.
func (l limits) wasteful(segments []*snapshotv1.Segment, delta []*part, live int) bool {
	var rows uint64
	for _, s := range segments {
		rows += s.GetEntries()
	}
	for _, p := range delta {
		rows += p.Entries
	}
	return live >= 0 && rows > 2*uint64(live)+l.wasteRows
}

// newBase reports whether the list is to be merged whole, because it is nothing, deltas outweigh the base, or merging costs next to
// nothing.
func (l limits) newBase(segments []*snapshotv1.Segment, delta uint64) bool {
	runs := runsOf(segments)
	var base, deltas uint64
	for _, r := range runs {
		if r.base {
			base += r.bytes
		} else {
			deltas += r.bytes
		}
	}
	deltas += delta
	// What is added before a sweep frees its first files is room to be kept.
	early := min(2*delta, base/10)
	switch {
	case len(runs) == 0:
		return true
	case deltas > l.smallDeltas && deltas+early > base/10*9:
		return true // never more than as much again
	case len(segments) >= l.maxSegments:
		return true
	}
	return len(runs) >= l.maxRuns && base+deltas <= l.smallState
}

// tiers decides from which segment on a list of deltas is merged with the delta about to be added; len(segments) means not at all. As
// many deltas of like size as the fan become one, and as many of those one again, so that a row is rewritten once per tier.
func (l limits) tiers(segments []*snapshotv1.Segment, delta uint64) int {
	runs := runsOf(segments)
	first := len(runs)
	for first > 0 && !runs[first-1].base {
		first--
	}
	from, merged := len(runs), delta
	for {
		like, size := from, merged
		for like > first && runs[like-1].bytes <= 2*merged {
			like--
			size += runs[like].bytes
		}
		if from-like+1 < l.fan {
			break
		}
		from, merged = like, size
	}
	if depth := len(runs) - first; depth >= l.maxDepth {
		from = min(from, len(runs)-depth/2) // sizes that fall and fall; the newest half is the smaller one
	}
	if from == len(runs) {
		return len(segments)
	}
	return runs[from].first
}
