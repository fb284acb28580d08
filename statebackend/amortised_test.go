package statebackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// Over two bases, uniform changes are written less than three times, and the segments of a snapshot take no more than twice the live
// state.
func TestWrittenBytesAndSpaceAreBounded(t *testing.T) {
	const keys, value = 8_000, 100
	for _, c := range []struct {
		name    string
		share   float64 // of the keys changed per snapshot
		sweeps  bool
		written float64 // per changed byte
		space   float64 // per live byte
	}{
		{"one in four hundred", 0.0025, true, 3.5, 2},
		{"one in a hundred", 0.01, true, 3, 2},
		{"one in a hundred of a state that is merged at once", 0.01, false, 3, 2},
		{"one in twenty", 0.05, true, 3, 2},
		{"one in eight", 0.12, true, 3, 2},
		{"one in three", 0.33, true, 3, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(1, 2))
			cfg := config(t, statetest.NewStore(t.TempDir()))
			cfg.KeyGroups, cfg.MaxParallelism = keygroup.Range{Last: 127}, 128
			b := statebackend.New(cfg, mustKey[uint64](t))
			statebackend.ScaleLimits(b, 1250, c.sweeps)
			v := statebackend.NewValue(b, "v", mustCodec[string](t))
			require.NoError(t, b.Open(context.Background()))
			defer func() { require.NoError(t, b.Close()) }()
			put := func(k uint64) {
				require.NoError(t, v.Put(k, fmt.Sprintf("%016x", random.Uint64())+strings.Repeat("v", value-16)))
			}
			for k := range uint64(keys) {
				put(k)
			}
			h := write(t, b, 1)
			b.CheckpointCompleted(1)
			live := size(h)
			require.InEpsilon(t, keys*(8+value), live, 0.1)

			var written, changed, most uint64
			var depth, longest int
			mark, bases := uint64(1), -1 // a base is whole once it has nothing from before its predecessor was
			for n := uint64(2); bases < 2; n++ {
				touched := map[uint64]bool{}
				for range int(c.share * keys) {
					k := random.Uint64N(keys)
					touched[k] = true
					put(k)
				}
				before := h
				h = write(t, b, n)
				b.CheckpointCompleted(n)
				written += size(h) - size(kept(h, before))
				changed += uint64(len(touched)) * (8 + value)
				most = max(most, size(h))
				require.True(t, deepest(onlyBase(h)) == 1 || !c.sweeps, "each key group is in one part of the base: in the new one or in what is left of the old one")
				depth, longest = max(depth, deepest(h)), max(longest, len(h.GetSegments()))
				if oldestBase(h) > mark {
					mark = n
					if bases++; bases == 0 {
						written, changed = 0, 0 // what is counted begins and ends with the end of a base
					}
				}
			}
			t.Logf("%d snapshots; written %.2f times, at most %.2f of the live state, %d deep, %d segments", mark, float64(written)/float64(changed), float64(most)/float64(live), depth, longest)
			require.Less(t, float64(written)/float64(changed), c.written)
			require.LessOrEqual(t, float64(most)/float64(live), c.space)
		})
	}
}

func size(h *snapshotv1.KeyedSnapshot) (n uint64) {
	seen := map[string]bool{}
	for _, s := range h.GetSegments() {
		if id := identity(s); !seen[id] {
			seen[id] = true
			n += s.GetSize()
		}
	}
	return n
}

func identity(s *snapshotv1.Segment) string {
	return fmt.Sprintf("%d %d %d", s.GetCheckpoint(), s.GetSize(), s.GetCrc32C())
}

// kept are the segments of h that an older snapshot has too.
func kept(h, before *snapshotv1.KeyedSnapshot) *snapshotv1.KeyedSnapshot {
	there := map[string]bool{}
	for _, s := range before.GetSegments() {
		there[identity(s)] = true
	}
	both := &snapshotv1.KeyedSnapshot{}
	for _, s := range h.GetSegments() {
		if there[identity(s)] {
			both.Segments = append(both.Segments, s)
		}
	}
	return both
}

func oldestBase(h *snapshotv1.KeyedSnapshot) (oldest uint64) {
	for _, s := range h.GetSegments() {
		if s.GetBase() && (oldest == 0 || s.GetCheckpoint() < oldest) {
			oldest = s.GetCheckpoint()
		}
	}
	return oldest
}

func onlyBase(h *snapshotv1.KeyedSnapshot) *snapshotv1.KeyedSnapshot {
	base := &snapshotv1.KeyedSnapshot{}
	for _, s := range h.GetSegments() {
		if s.GetBase() {
			base.Segments = append(base.Segments, s)
		}
	}
	return base
}

// deepest is the largest number of segments that have rows of one key group.
func deepest(h *snapshotv1.KeyedSnapshot) (most int) {
	depth := map[uint32]int{}
	for _, s := range h.GetSegments() {
		for g := s.GetKeyGroups().GetFirst(); g <= s.GetKeyGroups().GetLast(); g++ {
			depth[g]++
			most = max(most, depth[g])
		}
	}
	return most
}
