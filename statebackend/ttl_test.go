package statebackend_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/statebackend/segment"
	"github.com/weir-stream/weir/statebackend/statetest"
)

const ms = time.Millisecond

func openTTL(t testing.TB, ttl []statebackend.TTL, restored ...*snapshotv1.KeyedSnapshot) single[int] {
	b := statebackend.New(config(t, statetest.NewStore(t.TempDir()), restored...), mustKey[string](t))
	s := single[int]{b, statebackend.NewValue(b, "v", mustCodec[int](t), ttl...)}
	require.NoError(t, b.Open(context.Background()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return s
}

func after(d time.Duration) []statebackend.TTL { return []statebackend.TTL{{After: d}} }

var inEventTime = []statebackend.TTL{{After: 100 * ms, EventTime: true}}

// at sets the clock in processing time.
func (s single[V]) at(ms int64) { s.SetTime(ms, statebackend.NoTime, statebackend.NoTime) }

// in sets the clock in event time, and the time of the record.
func (s single[V]) in(watermark, record int64) { s.SetTime(5, watermark, record) }

func (s single[V]) has(t testing.TB, k string) bool {
	_, ok, err := s.v.Get(k)
	require.NoError(t, err)
	return ok
}

func TestAnEntryExpires(t *testing.T) {
	s := openTTL(t, after(100*ms))
	s.at(1000)
	require.NoError(t, s.v.Put("a", 1))
	require.NoError(t, s.v.Put("b", 1))
	s.at(1050)
	require.NoError(t, s.v.Put("b", 2))
	s.at(1099)
	require.True(t, s.has(t, "a"), "and reading does not refresh")
	s.at(1100)
	require.False(t, s.has(t, "a"))
	require.True(t, s.has(t, "b"))
	require.NoError(t, s.v.Put("a", 2), "an expired key begins anew")
	require.True(t, s.has(t, "a"))
	s.at(1150)
	require.False(t, s.has(t, "b"))
	require.NoError(t, s.v.Delete("a"))
	require.NoError(t, s.v.Delete("b"))
	require.False(t, s.has(t, "a"))
}

func TestReadsRefreshOnDemand(t *testing.T) {
	s := openTTL(t, []statebackend.TTL{{After: 100 * ms, RefreshedByReads: true}})
	s.at(1000)
	require.NoError(t, s.v.Put("a", 1))
	require.NoError(t, s.v.Put("b", 1))
	for n := uint64(1); n < 5; n++ {
		s.at(1000 + 90*int64(n))
		require.True(t, s.has(t, "a"))
		h := write(t, s.Backend, n)
		s.CheckpointCompleted(n)
		s = openTTL(t, []statebackend.TTL{{After: 100 * ms, RefreshedByReads: true}}, h)
		s.at(1000 + 90*int64(n))
	}
	require.False(t, s.has(t, "b"))
}

func TestAClockPutBackBringsNothingBack(t *testing.T) {
	s := openTTL(t, after(100*ms))
	s.at(1000)
	require.NoError(t, s.v.Put("a", 1))
	s.at(5000)
	require.False(t, s.has(t, "a"))
	s.at(1000)
	require.False(t, s.has(t, "a"))
	require.NoError(t, s.v.Put("a", 2))
	require.True(t, s.has(t, "a"), "what is written is there all the same")
	s.at(4999)
	require.True(t, s.has(t, "a"))
	s.at(5001)
	require.False(t, s.has(t, "a"))
}

// In event time a record finds what any record less than the time to live before it wrote, in whatever order they come.
func TestEventTimeIsThatOfRecordsAndWatermarks(t *testing.T) {
	s := openTTL(t, inEventTime)
	s.in(statebackend.NoTime, statebackend.NoTime)
	require.NoError(t, s.v.Put("before", 1))
	s.in(950, 1000)
	require.NoError(t, s.v.Put("ahead", 1))
	s.in(950, 800)
	require.NoError(t, s.v.Put("late", 1))
	require.True(t, s.has(t, "late"))
	s.in(1049, statebackend.NoTime)
	require.True(t, s.has(t, "before"), "counted from the first watermark")
	require.True(t, s.has(t, "late"), "counted from the watermark")
	s.in(1050, 1050)
	require.False(t, s.has(t, "before"))
	require.False(t, s.has(t, "late"))
	require.True(t, s.has(t, "ahead"), "counted from the record")
	s.in(1050, 1100)
	require.False(t, s.has(t, "ahead"), "a record sees nothing that has expired by its own time")
	s.in(1050, 1099)
	require.True(t, s.has(t, "ahead"))
	s.in(1100, 1100)
	require.False(t, s.has(t, "ahead"))
}

// What has expired is written neither as part of a delta nor in a merge, and needs no tombstone where no older segment has the key.
func TestSnapshotsLeaveOutWhatHasExpired(t *testing.T) {
	s := openTTL(t, after(100*ms))
	s.at(1000)
	for i := range 10 {
		require.NoError(t, s.v.Put(fmt.Sprint("old", i), i))
	}
	s.at(1060)
	require.NoError(t, s.v.Put("young", 1))
	require.Equal(t, uint64(11), entries(write(t, s.Backend, 1)))
	s.at(1100)
	require.Equal(t, uint64(1), entries(write(t, s.Backend, 2)), "the delta")

	s.CheckpointCompleted(1)
	full, err := s.Freeze(3, true).Write(context.Background())
	require.NoError(t, err)
	require.Equal(t, uint64(1), entries(full), "the merge")
	s.at(1160)
	s.CheckpointCompleted(3)
	full, err = s.Freeze(4, true).Write(context.Background())
	require.NoError(t, err)
	require.Zero(t, entries(full))
	require.Zero(t, statebackend.Held(s.Backend))
}

// A row that has expired goes on hiding the ones before it: an older row's stamp may be the later one.
func TestAnExpiredRowHidesOlderOnes(t *testing.T) {
	s := openTTL(t, inEventTime)
	s.in(1000, 1500)
	require.NoError(t, s.v.Put("a", 1))
	require.NoError(t, s.v.Put("b", 1))
	write(t, s.Backend, 1)
	s.CheckpointCompleted(1)
	s.in(1010, 1010)
	require.NoError(t, s.v.Put("a", 2))
	s.in(1200, 1200)
	h := write(t, s.Backend, 2)
	for _, look := range []single[int]{s, openTTL(t, inEventTime, h)} {
		look.in(1200, 1200)
		require.False(t, look.has(t, "a"))
		require.True(t, look.has(t, "b"))
	}
}

// So does a merge of deltas, which the base with the older row is not part of.
func TestAnExpiredRowHidesOlderOnesWhenDeltasAreMerged(t *testing.T) {
	store := statetest.NewStore(t.TempDir())
	b := statebackend.New(config(t, store), mustKey[string](t))
	statebackend.ShrinkLimits(b)
	s := single[int]{b, statebackend.NewValue(b, "v", mustCodec[int](t), inEventTime...)}
	require.NoError(t, b.Open(context.Background()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	s.in(1000, 1500)
	for i := range 2000 {
		require.NoError(t, s.v.Put(fmt.Sprint(i), i))
	}
	write(t, b, 1)
	b.CheckpointCompleted(1)
	merged := false
	runs := 0
	for n := uint64(2); n < 12; n++ {
		s.in(1000, 1010)
		if n == 2 {
			require.NoError(t, s.v.Put("7", 1))
		}
		s.in(1000, 1500)
		require.NoError(t, s.v.Put(fmt.Sprint(100+n), 1))
		if n > 2 {
			s.in(1200, 1500)
		}
		h := write(t, b, n)
		b.CheckpointCompleted(n)
		merged = merged || len(h.GetSegments()) < runs
		runs = len(h.GetSegments())
		cfg := config(t, store, h)
		look := statebackend.New(cfg, mustKey[string](t))
		r := single[int]{look, statebackend.NewValue(look, "v", mustCodec[int](t), inEventTime...)}
		require.NoError(t, look.Open(context.Background()))
		r.in(1200, 1200)
		require.False(t, r.has(t, "7"), "checkpoint %d", n)
		require.True(t, r.has(t, "8"))
		require.NoError(t, look.Close())
	}
	require.True(t, merged)
}

func TestMemoryIsFreedOfWhatHasExpired(t *testing.T) {
	for _, checkpoints := range []bool{true, false} {
		t.Run(fmt.Sprint("checkpoints ", checkpoints), func(t *testing.T) {
			s := openTTL(t, after(100*ms))
			for i := range 100_000 {
				s.at(int64(i / 10))
				require.NoError(t, s.v.Put(fmt.Sprint(i), i))
				if checkpoints && i%1000 == 0 {
					write(t, s.Backend, uint64(i/1000+1))
					s.CheckpointCompleted(uint64(i/1000 + 1))
				}
			}
			// 1000 live at a time, and up to 1000 more have expired and wait for a checkpoint.
			require.Less(t, statebackend.Held(s.Backend), 4500)
		})
	}
}

// A time to live may come, go and change from one start to the next.
func TestATimeToLiveChanges(t *testing.T) {
	before := openTTL(t, nil)
	require.False(t, before.HasTTL())
	require.NoError(t, before.v.Put("a", 1))
	require.NoError(t, before.v.Put("b", 1))
	none := write(t, before.Backend, 1)
	require.Equal(t, uint32(segment.BoundedFormat), none.GetSegments()[0].GetFormatVersion())

	// Added: what was there counts from the restore, also after further ones.
	s := openTTL(t, after(100*ms), none)
	s.at(1000)
	require.True(t, s.has(t, "a"))
	s.at(1080)
	require.NoError(t, s.v.Put("b", 2))
	require.NoError(t, s.v.Put("c", 1))
	added := write(t, s.Backend, 1)
	for range 2 {
		s = openTTL(t, after(100*ms), added)
		s.at(1099)
		require.True(t, s.has(t, "a"))
		added = write(t, s.Backend, 2)
	}
	s.at(1100)
	require.False(t, s.has(t, "a"))
	require.True(t, s.has(t, "b"))
	added = write(t, s.Backend, 3)
	s = openTTL(t, after(100*ms), added)
	s.at(1099)
	require.False(t, s.has(t, "a"), "the snapshot knows how far the clock had come")

	// Longer: what has expired stays expired, the rest lives longer.
	s = openTTL(t, after(1000*ms), added)
	s.at(1101)
	require.False(t, s.has(t, "a"))
	s.at(2079)
	require.True(t, s.has(t, "b"))
	s.at(2080)
	require.False(t, s.has(t, "b"))

	// Shorter: at once.
	s = openTTL(t, after(20*ms), added)
	s.at(1101)
	require.False(t, s.has(t, "b"))

	// Gone: what has expired stays expired, the rest lives forever.
	s = openTTL(t, nil, added)
	s.at(1101)
	require.False(t, s.has(t, "a"))
	s.at(1_000_000)
	require.True(t, s.has(t, "b"))
	require.NoError(t, s.v.Put("d", 1))
	gone := write(t, s.Backend, 3)

	// And back: counted from the last write, which went on being recorded.
	s = openTTL(t, after(100*ms), gone)
	s.at(1_000_050)
	require.False(t, s.has(t, "a"))
	require.False(t, s.has(t, "b"))
	require.True(t, s.has(t, "d"))

	// In the other kind of time: what was there counts from the restore.
	s = openTTL(t, inEventTime, added)
	s.in(statebackend.NoTime, statebackend.NoTime)
	require.False(t, s.has(t, "a"))
	require.True(t, s.has(t, "b"))
	s.in(50, 50)
	require.NoError(t, s.v.Put("c", 2))
	s.in(149, 149)
	require.True(t, s.has(t, "b"))
	s.in(150, 150)
	require.False(t, s.has(t, "b"))
	require.False(t, s.has(t, "c"))
}

// Elements that have expired leave the segments although the list does not change.
func TestMergesCutExpiredElementsOut(t *testing.T) {
	b := statebackend.New(config(t, statetest.NewStore(t.TempDir())), mustKey[string](t))
	l := statebackend.NewList(b, "l", mustCodec[string](t), after(100*ms)...)
	require.NoError(t, b.Open(context.Background()))
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	s := single[string]{Backend: b}
	s.at(1000)
	require.NoError(t, l.Append("k", strings.Repeat("long", 1000)))
	s.at(1050)
	require.NoError(t, l.Append("k", "short"))
	require.Greater(t, write(t, b, 1).GetSegments()[0].GetSize(), uint64(4000))
	b.CheckpointCompleted(1)
	s.at(1100)
	h, err := b.Freeze(2, true).Write(context.Background())
	require.NoError(t, err)
	require.Less(t, h.GetSegments()[0].GetSize(), uint64(200))
	all, err := l.All("k")
	require.NoError(t, err)
	require.Equal(t, []string{"short"}, all)
}

// While rows are on their way into memory, a walk between bounds takes each once.
func TestAWalkTakesEachRowOnceWhileTheyAreLoaded(t *testing.T) {
	declare := func(cfg statebackend.Config) (*statebackend.Backend[string], *statebackend.Map[string, int, string]) {
		b := statebackend.New(cfg, mustKey[string](t))
		m := statebackend.NewMap(b, "m", mustKey[int](t), mustCodec[string](t))
		require.NoError(t, b.Open(context.Background()))
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b, m
	}
	b, m := declare(config(t, statetest.NewStore(t.TempDir())))
	for i := range 1000 {
		require.NoError(t, m.Put("k", i, "v"))
	}
	posts := make(chan func() error, 10)
	cfg := config(t, statetest.NewStore(t.TempDir()), write(t, b, 1))
	cfg.Post = func(fn func() error) { posts <- fn }
	restored, m := declare(cfg)
	for i := 0; ; i++ {
		var seen []int
		require.NoError(t, m.RangeBetween("k", 100, 900, func(mk int, _ string) bool {
			seen = append(seen, mk)
			return true
		}))
		require.Len(t, seen, 800)
		require.True(t, slices.IsSorted(seen))
		if statebackend.Loaded(restored) {
			require.Greater(t, i, 3)
			return
		}
		require.NoError(t, (<-posts)())
	}
}
