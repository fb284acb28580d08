package statebackend

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What rows tell is what a map would, whatever is added, succeeded and removed, also of keys whose hashes are alike.
func TestRowsAreAMap(t *testing.T) {
	t.Run("integers", func(t *testing.T) { rowsAreAMap(t, func(i int) uint64 { return uint64(i) }) })
	t.Run("strings", func(t *testing.T) { rowsAreAMap(t, func(i int) string { return string(rune(i)) }) })
	t.Run("structs", func(t *testing.T) {
		rowsAreAMap(t, func(i int) timer[int32] { return timer[int32]{int64(i), int32(i % 3)} })
	})
}

func rowsAreAMap[K comparable](t *testing.T, key func(int) K) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRows[K, int]()
		want := map[K]int{}
		keys := rapid.SampledFrom([]int{10, 300, 5000}).Draw(t, "keys")
		steps := rapid.IntRange(0, 20_000).Draw(t, "steps")
		random := rapid.Uint64().Draw(t, "seed")
		epoch, released := uint64(1), uint64(0)
		next := func(n int) int {
			random = random*6364136223846793005 + 1442695040888963407
			return int(random >> 33 % uint64(n))
		}
		for i := range steps {
			k := key(next(keys))
			ref, v := r.find(k)
			value, ok := want[k]
			require.Equal(t, ok, v != nil)
			switch {
			case v == nil:
				_, v = r.add(k, released)
				v.value, v.epoch, want[k] = i, uint32(epoch), i
			case next(3) == 0:
				require.Equal(t, value, v.value)
				r.remove(ref, v, released)
				delete(want, k)
			default:
				require.Equal(t, value, v.value)
				if uint64(v.epoch) > released {
					_, v = r.succeed(ref, v, released)
				}
				v.value, v.epoch, want[k] = i, uint32(epoch), i
			}
			switch next(500) {
			case 0:
				epoch++
			case 1:
				released = epoch - 1
			case 2:
				_ = r.fetch([]K{k, key(next(keys)), key(keys)}, nil)
			}
		}
		require.Equal(t, len(want), r.len())
		got := map[K]int{}
		r.each(func(ref uint32, v *cell[K, int]) bool {
			got[v.key] = v.value
			at, found := r.find(v.key)
			require.True(t, at == ref && found == v)
			return true
		})
		require.Equal(t, want, got)
	})
}

// Snapshots may refer to a version for as long as its epoch is not released, and it is used again after that.
func TestVersionsAreKeptForSnapshots(t *testing.T) {
	r := newRows[int, int]()
	ref, v := r.add(1, 0)
	v.value, v.epoch = 10, 1
	_, next := r.succeed(ref, v, 0)
	next.value, next.epoch = 20, 2
	for i := range 10_000 {
		_, other := r.add(i+2, 0)
		other.epoch = 2
	}
	require.Equal(t, 10, r.chunks.at(ref).value, "nothing has taken its place")
	require.Len(t, r.retired, 1)
	_, last := r.add(-1, 1)
	require.Empty(t, r.retired[r.next:])
	require.Same(t, r.chunks.at(ref), last, "it is used again")
}

// An arena gives chunks back of which nothing is left.
func TestChunksAreGivenBack(t *testing.T) {
	r := newRows[int, int]()
	for i := range 100 * chunkSize {
		r.add(i, 0)
	}
	for i := range 99 * chunkSize {
		ref, v := r.find(i)
		r.remove(ref, v, math.MaxUint64)
	}
	held := 0
	for _, c := range r.chunks {
		if c != nil {
			held++
		}
	}
	require.LessOrEqual(t, held, 3, "what the last rows are in, and one to spare")
	chunks := len(r.chunks)
	for i := range 99 * chunkSize {
		r.add(i, 0)
	}
	require.Len(t, r.chunks, chunks, "their numbers are used again")
}

// However many rows there are, one that comes and goes needs no chunk of its own each time, nor do rows that come while others go.
func TestRowsThatComeAndGoTakeNoMemory(t *testing.T) {
	for n := range 3 * chunkSize {
		r := newRows[int, int]()
		for i := range n {
			r.add(i, 0)
		}
		next := n
		comeAndGo := func() {
			ref, v := r.add(next, 0)
			r.drop(ref, v)
			next++
		}
		comeAndGo()
		require.Zero(t, testing.AllocsPerRun(5, comeAndGo), "%d rows", n)
		for i := range n { // each chunk is empty once while another is open
			ref, v := r.find(i)
			r.drop(ref, v)
			require.Zero(t, testing.AllocsPerRun(1, comeAndGo), "the first %d of %d rows are gone", i+1, n)
			if n%100 != 0 {
				break
			}
		}
	}
}

// Keys that follow each other do not lie in each other's way in the index.
func TestKeysWithAPatternAreSpread(t *testing.T) {
	const n = 100_000
	for name, key := range map[string]func(i uint64) uint64{
		"one by one":   func(i uint64) uint64 { return i },
		"minutes":      func(i uint64) uint64 { return 1_700_000_000_000 + 60_000*i },
		"high bits":    func(i uint64) uint64 { return i << 32 },
		"both halves":  func(i uint64) uint64 { return i%300<<32 | i/300 },
		"downwards":    func(i uint64) uint64 { return -i },
		"powers of 64": func(i uint64) uint64 { return 64 * i },
	} {
		for range 4 { // each with other salts
			r := newRows[uint64, struct{}]()
			for i := range uint64(n) {
				r.add(key(i), 0)
			}
			passed := 0
			for i := range uint64(n) {
				hash := r.hash(key(i))
				slots := r.index.slots(hash)
				mask := uint32(len(slots) - 1)
				for at := hash & mask; uint32(slots[at]>>32) != hash || r.at(uint32(slots[at])-1).key != key(i); at = (at + 1) & mask {
					passed++
				}
			}
			require.Less(t, float64(passed)/n, 1.5, "slots that are passed per key, keys %s", name)
		}
	}
}

// A key that is not equal to itself has no place; that ends the task and does not hang it.
func TestAKeyThatIsNotEqualToItself(t *testing.T) {
	r := newRows[float64, int]()
	ref, v := r.add(math.NaN(), 0)
	require.PanicsWithValue(t, errUnequalKey, func() { r.remove(ref, v, math.MaxUint64) })
}

// The sorter keeps the order of equal heads, however many there are.
func TestSorterIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		heads := rapid.SliceOfN(rapid.Uint64Range(0, 1<<rapid.IntRange(0, 63).Draw(t, "bits")), 1, 400).Draw(t, "heads")
		var s sorter
		s.begin(len(heads))
		differ := uint64(0)
		for i, h := range heads {
			s.items[i].head = h
			differ |= h ^ heads[0]
		}
		s.sort(differ)
		for i := 1; i < len(s.items); i++ {
			a, b := s.items[i-1], s.items[i]
			require.True(t, a.head < b.head || a.head == b.head && a.n < b.n)
		}
		require.Len(t, s.items, len(heads))
	})
}
