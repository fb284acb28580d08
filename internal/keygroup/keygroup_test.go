package keygroup_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/internal/keygroup"
)

// The vectors are part of the on-disk format; the hashes behind them were computed by another implementation of XXH64.
func TestVectors(t *testing.T) {
	for key, hash := range map[string]uint64{
		"":     0xef46db3751d8e999,
		"a":    0xd24ec4f1a98c6e5b,
		"as":   0x1c330fb2d66be179,
		"asd":  0x631c37ce72a97393,
		"asdf": 0x415872f599cea71e,
		"Call me Ishmael. Some years ago--never mind how long precisely-": 0x02a2e85470d6fd96,
	} {
		for _, groups := range []int{1, 2, 100, keygroup.DefaultMaxParallelism, keygroup.MaxMaxParallelism} {
			want := int(hash % uint64(groups))
			require.Equal(t, want, keygroup.Of([]byte(key), groups), "%q", key)
			require.Equal(t, want, keygroup.OfString(key, groups), "%q", key)
		}
	}
	require.Equal(t, 25, keygroup.OfString("", 128))
	require.Equal(t, 91, keygroup.OfString("a", 128))
	require.Equal(t, 30, keygroup.OfString("asdf", 128))
}

func TestRanges(t *testing.T) {
	require.Equal(t, keygroup.Range{First: 0, Last: 42}, keygroup.RangeOf(0, 3, 128))
	require.Equal(t, keygroup.Range{First: 43, Last: 85}, keygroup.RangeOf(1, 3, 128))
	require.Equal(t, keygroup.Range{First: 86, Last: 127}, keygroup.RangeOf(2, 3, 128))
}

func TestEveryGroupBelongsToOneSubtask(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		groups := rapid.IntRange(1, keygroup.MaxMaxParallelism).Draw(t, "groups")
		parallelism := rapid.IntRange(1, min(groups, 300)).Draw(t, "parallelism")
		next := 0
		for subtask := range parallelism {
			r := keygroup.RangeOf(subtask, parallelism, groups)
			require.Equal(t, next, r.First)
			require.Positive(t, r.Len())
			require.Equal(t, subtask, keygroup.Subtask(r.First, parallelism, groups))
			require.Equal(t, subtask, keygroup.Subtask(r.Last, parallelism, groups))
			next = r.Last + 1
		}
		require.Equal(t, groups, next)
	})
}
