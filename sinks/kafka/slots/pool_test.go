package slots

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPoolAlternatesAndGrows(t *testing.T) {
	p := NewPool(7, false)
	require.Equal(t, []int{0}, p.ToStart())
	require.Empty(t, p.ToStart())
	_, wait, err := p.Acquire()
	require.NoError(t, err)
	require.True(t, wait)
	require.NoError(t, p.Started(0))
	slot, wait, err := p.Acquire()
	require.NoError(t, err)
	require.False(t, wait)
	require.Zero(t, slot)
	require.Equal(t, []int{1}, p.ToStart(), "a spare is made while the first one is written")
}

func TestPoolReachesItsBound(t *testing.T) {
	p := NewPool(2, false)
	for n := range 2 {
		p.ToStart()
		require.NoError(t, p.Started(n))
		slot, _, err := p.Acquire()
		require.NoError(t, err)
		require.NoError(t, p.Prepared(slot))
	}
	require.Empty(t, p.ToStart())
	_, wait, err := p.Acquire()
	require.False(t, wait)
	require.ErrorIs(t, err, ErrExhausted)
}

// TestPoolInSteadyState checks that a sink that writes, prepares, commits and releases one checkpoint after the other needs no more
// than four ids.
func TestPoolInSteadyState(t *testing.T) {
	for _, renew := range []bool{false, true} {
		p := NewPool(8, renew)
		start := func() {
			for _, s := range p.ToStart() {
				require.NoError(t, p.Started(s))
			}
		}
		committed := -1
		for range 50 {
			start()
			slot, wait, err := p.Acquire()
			require.NoError(t, err)
			require.False(t, wait)
			start()
			require.NoError(t, p.Prepared(slot))
			// The next checkpoint completed without the one committed before.
			if committed >= 0 {
				_, err := p.Release(committed)
				require.NoError(t, err)
			}
			require.NoError(t, p.Committed(slot))
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
		p := NewPool(bound, renew)
		dirty := map[int]bool{}
		fresh := map[int]bool{} // initialised since its last use
		pick := func(t *rapid.T, state state) int {
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
			"start": func(t *rapid.T) { p.ToStart() },
			"started": func(t *rapid.T) {
				s := pick(t, starting)
				require.NoError(t, p.Started(s))
				fresh[s] = true
			},
			"acquire": func(t *rapid.T) {
				if slices.Contains(p.slots, writing) {
					t.Skip("the driver prepares before it begins again")
				}
				hadReady, hadStarting := len(p.free) > 0, slices.Contains(p.slots, starting)
				s, wait, err := p.Acquire()
				require.Equal(t, !hadReady && hadStarting, wait)
				require.Equal(t, !hadReady && !hadStarting, err != nil)
				if hadReady && renew {
					require.True(t, fresh[s], "with transactions v1 an id is initialised before each use")
				}
			},
			"prepare": func(t *rapid.T) {
				s := pick(t, writing)
				require.NoError(t, p.Prepared(s))
				fresh[s] = false
			},
			"put back": func(t *rapid.T) { require.NoError(t, p.PutBack(pick(t, writing))) },
			"commit": func(t *rapid.T) {
				s := pick(t, prepared)
				trusted := rapid.Bool().Draw(t, "trusted")
				if !trusted {
					p.Distrust(s)
				}
				require.NoError(t, p.Committed(s))
				dirty[s] = !trusted
			},
			"release": func(t *rapid.T) {
				s := pick(t, committed)
				renewed, err := p.Release(s)
				require.NoError(t, err)
				require.Equal(t, renew || dirty[s], renewed)
				dirty[s] = false
				if renewed {
					require.NotContains(t, p.free, s)
				}
			},
			"": func(t *rapid.T) {
				require.LessOrEqual(t, len(p.slots), bound)
				seen := map[int]bool{}
				for _, s := range p.free {
					require.False(t, seen[s], "listed as ready twice")
					seen[s] = true
					require.Equal(t, ready, p.slots[s])
				}
				for i, s := range p.slots {
					require.Equal(t, s == ready, seen[i])
				}
			},
		})
	})
}

func TestPoolRefusesWrongMoves(t *testing.T) {
	p := NewPool(2, false)
	p.ToStart()
	require.ErrorIs(t, p.Prepared(0), ErrState)
	require.ErrorIs(t, p.Started(1), ErrState)
	require.NoError(t, p.Started(0))
	require.ErrorIs(t, p.Committed(0), ErrState)
	require.ErrorIs(t, p.PutBack(0), ErrState)
}
