package statebackend_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/statetest"
)

// A segment that two subtasks took over counts for each only in its own key groups, also after they became one again.
func TestSharedSegmentsStayClippedAfterRescaling(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	var handles []*snapshotv1.KeyedSnapshot
	want := map[string]int{}
	for step, parallelism := range []int{1, 2, 1, 1, 3} {
		var next []*snapshotv1.KeyedSnapshot
		for i := range parallelism {
			cfg := config(t, store, handles...)
			cfg.KeyGroups = keygroup.RangeOf(i, parallelism, keygroup.DefaultMaxParallelism)
			cfg.NamePrefix += fmt.Sprint(step, "-", i)
			s := newSingle[int](t, cfg)
			for n, k := range keys {
				if !cfg.KeyGroups.Contains(keygroup.OfString(k, keygroup.DefaultMaxParallelism)) {
					continue
				}
				v, _, err := s.v.Get(k)
				require.NoError(t, err)
				require.Equal(t, want[k], v, k)
				if step == 0 || n < 10 || n < 1000 && step == 1 {
					require.NoError(t, s.v.Put(k, v+1))
					want[k]++
				}
			}
			next = append(next, write(t, s.Backend, uint64(step+1)))
			require.NoError(t, s.Close())
		}
		handles = next
	}
	require.Len(t, store.Names(), 1, "the base is never rewritten")
}
