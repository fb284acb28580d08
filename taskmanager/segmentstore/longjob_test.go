package segmentstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// running is a keyed count of one operator over the real store.
type running struct {
	backend *statebackend.Backend[int64]
	value   *statebackend.Value[int64, []byte]
}

func run(t *testing.T, scope *segmentstore.Scope, prefix string, restored ...*snapshotv1.KeyedSnapshot) running {
	key, err := codec.ForKey[int64]()
	require.NoError(t, err)
	bytes, err := codec.For[[]byte]()
	require.NoError(t, err)
	b := statebackend.New(statebackend.Config{
		Operator: "count", KeyGroups: keygroup.Range{Last: keygroup.DefaultMaxParallelism - 1}, Dir: t.TempDir(), NamePrefix: prefix,
		Segments: scope, Restored: restored,
	}, key)
	r := running{backend: b, value: statebackend.NewValue(b, "v", bytes)}
	require.NoError(t, b.Open(t.Context()))
	return r
}

// A job takes any number of checkpoints in one life of its worker. What they leave behind goes, what the newest one needs stays, however
// long ago it was written.
func TestCopiesOfALongJobStayWithinTheBound(t *testing.T) {
	const (
		keys, checkpoints = 3000, 100
		bound             = 2 << 20 // some 5 times the state
	)
	f := newFixture(t)
	store := f.open(t, bound)
	scope := store.Scope()
	r := run(t, scope, "c/jobs/j/state/1/count-0/count")
	var last *snapshotv1.KeyedSnapshot
	for n := uint64(1); n <= checkpoints; n++ {
		for i := range int64(keys) {
			if n == 1 || i%10 == int64(n%7) {
				require.NoError(t, r.value.Put(i, fmt.Appendf(nil, "%d-%0100d", i, n)))
			}
		}
		frozen := r.backend.Freeze(n, false)
		if n%17 == 0 {
			frozen.Discard() // a checkpoint that comes to nothing
			continue
		}
		h, err := frozen.Write(t.Context())
		require.NoError(t, err)
		if n%19 != 0 { // nor does one of which nobody tells that it is complete
			r.backend.CheckpointCompleted(n)
			last = h
		}
		require.LessOrEqual(t, store.Bytes(), int64(bound), "at checkpoint %d", n)
	}
	require.Greater(t, store.Stats().UploadedBytes, uint64(2*bound), "far more was written than fits")

	// Not closed: the process is killed.
	scope.Close()
	f.bucket.opens.Store(0)
	next := run(t, store.Scope(), "c/jobs/j/state/2/count-0/count", last)
	v, ok, err := next.value.Get(1)
	require.NoError(t, err)
	require.True(t, ok)
	require.Contains(t, string(v), "1-0")
	require.Zero(t, f.bucket.opens.Load(), "what the newest checkpoint needs is here")
	require.NoError(t, next.backend.Close())
	require.NoError(t, r.backend.Close())
}

// The base of a state is its oldest file, and the one that a restore needs most.
func TestAFileThatIsNeededOutlivesNewerOnesThatAreNot(t *testing.T) {
	f := newFixture(t)
	s := f.open(t, 50)
	scope := s.Scope()
	upload := func(name string) *snapshotv1.Segment {
		data := []byte(name + "........")
		require.NoError(t, scope.Upload(t.Context(), local(t, data), "c/"+name, uint64(len(data)), crcOf(data)))
		return segment("c/"+name, data)
	}
	base := upload("00")
	for i := 1; i < 20; i++ {
		delta := upload(fmt.Sprintf("%02d", i))
		require.NoError(t, scope.Release(t.Context(), delta.GetName()))
		require.EqualValues(t, min(10*(i+1), 50), s.Bytes())
	}
	_, err := scope.Fetch(t.Context(), base)
	require.NoError(t, err)
	require.Zero(t, f.bucket.opens.Load(), "it is here")
	require.NoError(t, scope.Release(t.Context(), base.GetName(), "c/unknown"))
	require.EqualValues(t, 50, s.Bytes(), "nothing goes before its place is needed")
}
