package kafkasink

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPoolAlternatesAndGrows(t *testing.T) {
	p := newPool(7, false)
	require.Equal(t, []int{0}, p.toStart())
	require.Empty(t, p.toStart())
	_, wait, err := p.acquire()
	require.NoError(t, err)
	require.True(t, wait)
	require.NoError(t, p.started(0))
	slot, wait, err := p.acquire()
	require.NoError(t, err)
	require.False(t, wait)
	require.Zero(t, slot)
	require.Equal(t, []int{1}, p.toStart(), "a spare is made while the first one is written")
}

func TestPoolReachesItsBound(t *testing.T) {
	p := newPool(2, false)
	for n := range 2 {
		p.toStart()
		require.NoError(t, p.started(n))
		slot, _, err := p.acquire()
		require.NoError(t, err)
		require.NoError(t, p.prepared(slot))
	}
	require.Empty(t, p.toStart())
	_, wait, err := p.acquire()
	require.False(t, wait)
	require.ErrorIs(t, err, errPoolExhausted)
}

// TestPoolInSteadyState checks that a sink that writes, prepares, commits and releases one checkpoint after the other needs no more
// than four ids.
func TestPoolInSteadyState(t *testing.T) {
	for _, renew := range []bool{false, true} {
		p := newPool(8, renew)
		start := func() {
			for _, s := range p.toStart() {
				require.NoError(t, p.started(s))
			}
		}
		committed := -1
		for range 50 {
			start()
			slot, wait, err := p.acquire()
			require.NoError(t, err)
			require.False(t, wait)
			start()
			require.NoError(t, p.prepared(slot))
			// The next checkpoint completed without the one committed before.
			if committed >= 0 {
				_, err := p.release(committed)
				require.NoError(t, err)
			}
			require.NoError(t, p.committed(slot, true))
			committed = slot
		}
		require.LessOrEqual(t, len(p.slots), 4)
	}
}

// TestPoolKeepsItsPromises runs random lives of a pool.
func TestPoolKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.IntRange(1, 6).Draw(t, "bound")
		renew := rapid.Bool().Draw(t, "renew")
		p := newPool(bound, renew)
		dirty := map[int]bool{}
		fresh := map[int]bool{} // initialised since its last use
		pick := func(t *rapid.T, state slotState) int {
			var in []int
			for i, s := range p.slots {
				if s == state {
					in = append(in, i)
				}
			}
			if len(in) == 0 {
				t.Skip("no slot there")
			}
			return rapid.SampledFrom(in).Draw(t, "slot")
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) { p.toStart() },
			"started": func(t *rapid.T) {
				s := pick(t, slotStarting)
				require.NoError(t, p.started(s))
				fresh[s] = true
			},
			"acquire": func(t *rapid.T) {
				if slices.Contains(p.slots, slotWriting) {
					t.Skip("the driver prepares before it begins again")
				}
				hadReady, hadStarting := len(p.ready) > 0, slices.Contains(p.slots, slotStarting)
				s, wait, err := p.acquire()
				require.Equal(t, !hadReady && hadStarting, wait)
				require.Equal(t, !hadReady && !hadStarting, err != nil)
				if hadReady && renew {
					require.True(t, fresh[s], "with transactions v1 an id is initialised before each use")
				}
			},
			"prepare": func(t *rapid.T) {
				s := pick(t, slotWriting)
				require.NoError(t, p.prepared(s))
				fresh[s] = false
			},
			"put back": func(t *rapid.T) { require.NoError(t, p.putBack(pick(t, slotWriting))) },
			"commit": func(t *rapid.T) {
				s := pick(t, slotPrepared)
				trusted := rapid.Bool().Draw(t, "trusted")
				require.NoError(t, p.committed(s, trusted))
				dirty[s] = !trusted
			},
			"release": func(t *rapid.T) {
				s := pick(t, slotCommitted)
				renewed, err := p.release(s)
				require.NoError(t, err)
				require.Equal(t, renew || dirty[s], renewed)
				dirty[s] = false
				if renewed {
					require.NotContains(t, p.ready, s)
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(p.slots), bound)
				seen := map[int]bool{}
				for _, s := range p.ready {
					require.False(t, seen[s], "listed as ready twice")
					seen[s] = true
					require.Equal(t, slotReady, p.slots[s])
				}
				for i, s := range p.slots {
					require.Equal(t, s == slotReady, seen[i])
				}
			},
		})
	})
}

func TestPoolRefusesWrongMoves(t *testing.T) {
	p := newPool(2, false)
	p.toStart()
	require.ErrorIs(t, p.prepared(0), errSlotState)
	require.ErrorIs(t, p.started(1), errSlotState)
	require.NoError(t, p.started(0))
	require.ErrorIs(t, p.committed(0, true), errSlotState)
	require.ErrorIs(t, p.putBack(0), errSlotState)
}
