package statebackend_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// Rows that were evicted are in memory again before the records that were told of are handled, with the value that they had last.
func TestEvictedRowsOfExpectedKeysAreReadAhead(t *testing.T) {
	const keys = 20_000
	cfg := config(t, statetest.NewStore(t.TempDir()))
	cfg.MemoryBudget = 400 << 10
	b := newSingle[string](t, cfg)
	defer func() { require.NoError(t, b.Close()) }()
	key := func(i int) string { return fmt.Sprintf("key-%06d", i*7919%keys) }
	for n := uint64(1); n <= 4; n++ {
		for i := range keys / 4 {
			require.NoError(t, b.v.Put(key(i+int(n-1)*keys/4), fmt.Sprint("value", n)))
		}
		write(t, b.Backend, n)
		b.CheckpointCompleted(n)
	}
	require.True(t, statebackend.Evicting(b.Backend))
	require.NoError(t, b.v.Delete(key(keys/2)))
	write(t, b.Backend, 5)
	b.CheckpointCompleted(5)

	cold, ahead := 0, 0
	for from := 0; from+32 <= keys; from += 32 {
		var expected []string
		evicted := map[string]bool{}
		for i := range 32 {
			k := key(from + i)
			expected = append(expected, k)
			evicted[k] = !statebackend.Remembers(b.v, k)
		}
		require.True(t, b.Expects())
		b.Expect(append(expected, "a key that there is not"))
		for i, k := range expected {
			if evicted[k] && from+i != keys/2 {
				cold++
				if statebackend.Remembers(b.v, k) {
					ahead++
				}
			}
			v, ok, err := b.v.Get(k)
			require.NoError(t, err)
			require.Equal(t, from+i != keys/2, ok)
			if ok {
				require.Equal(t, fmt.Sprint("value", 1+(from+i)/(keys/4)), v)
			}
		}
	}
	require.Greater(t, cold, keys/2)
	require.Greater(t, ahead, cold*9/10)
}
