package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
)

// told is a store that notes of which copies it is told that nobody needs them.
type told struct{ released []string }

func (*told) Upload(context.Context, string, string, uint64, uint32) error { return nil }

func (*told) Distrust(context.Context, ...string) error { return nil }

func (*told) Fetch(context.Context, *snapshotv1.Segment) (string, error) { return "", nil }

func (s *told) Release(_ context.Context, names ...string) error {
	s.released = append(s.released, names...)
	return nil
}

func TestACopyIsKeptUntilItsLastUserLetsGo(t *testing.T) {
	store := &told{}
	all := newCopies(store)
	a, b := all.share(), all.share()
	for _, s := range []*share{a, a, b} { // a fetches twice
		_, err := s.Fetch(t.Context(), &snapshotv1.Segment{Name: "old"})
		require.NoError(t, err)
	}
	require.NoError(t, a.Upload(t.Context(), "", "new", 0, 0))

	require.NoError(t, a.Release(t.Context(), "old"))
	require.NoError(t, a.Release(t.Context(), "old", "unknown"))
	require.Empty(t, store.released, "the other one needs it still")
	require.NoError(t, b.Release(t.Context(), "old", "new"))
	require.Equal(t, []string{"old"}, store.released, "what one never had is not its to let go")
	require.NoError(t, a.Release(t.Context(), "new"))
	require.Equal(t, []string{"old", "new"}, store.released)
}
