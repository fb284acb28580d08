package ingest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/watermark"
	"github.com/weir-stream/weir/sources"
)

func snapshotOf(positions []sources.Position, largest map[string]int64) *snapshotv1.OperatorSnapshot {
	tracker := watermark.NewTracker(watermark.Monotonous(), watermark.None, nil)
	for key, at := range largest {
		tracker.Record(tracker.Split(key), at)
	}
	return &snapshotv1.OperatorSnapshot{Uid: "in", OperatorStates: encodeState(positions, tracker)}
}

func TestStateComesBackFromAllFormerSubtasks(t *testing.T) {
	a := snapshotOf([]sources.Position{{Key: "a", Value: []byte{1}}, {Key: "b"}}, map[string]int64{"a": -7, "b": 9})
	// A split that moved between subtasks may be in two snapshots: the larger maximum counts.
	b := snapshotOf([]sources.Position{{Key: "c", Value: []byte{3}}}, map[string]int64{"b": 4, "c": 1 << 60})
	r, err := decodeState([]*snapshotv1.OperatorSnapshot{a, b})
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"a": -7, "b": 9, "c": 1 << 60}, r.largest)
	require.Equal(t, []sources.Position{{Key: "a", Value: []byte{1}}, {Key: "b"}, {Key: "c", Value: []byte{3}}}, r.positions)
}

func TestUnknownStateIsRefused(t *testing.T) {
	for name, st := range map[string]*snapshotv1.OperatorState{
		"newer version": {Name: positionsState, Version: positionsVersion + 1},
		"other name":    {Name: "colors", Version: 1},
		"malformed":     {Name: largestState, Version: largestVersion, Entries: []*snapshotv1.OperatorStateEntry{{Key: "a", Value: []byte{0x80}}}},
	} {
		_, err := decodeState([]*snapshotv1.OperatorSnapshot{{Uid: "in", OperatorStates: []*snapshotv1.OperatorState{st}}})
		require.ErrorIs(t, err, ErrState, name)
	}
}

func FuzzState(f *testing.F) {
	data, err := proto.Marshal(snapshotOf([]sources.Position{{Key: "a", Value: []byte{1}}}, map[string]int64{"a": -7}))
	require.NoError(f, err)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var s snapshotv1.OperatorSnapshot
		if proto.Unmarshal(data, &s) != nil {
			return
		}
		r, err := decodeState([]*snapshotv1.OperatorSnapshot{&s})
		if err != nil {
			return
		}
		again, err := decodeState([]*snapshotv1.OperatorSnapshot{snapshotOf(r.positions, r.largest)})
		require.NoError(t, err)
		require.Equal(t, r.positions, again.positions)
		for key, at := range r.largest {
			if at != watermark.None {
				require.Equal(t, at, again.largest[key])
			}
		}
	})
}

// TestTheLastWatermarkGoesOutBeforeIdleness: consumers leave the watermark of an idle channel out of account.
func TestTheLastWatermarkGoesOutBeforeIdleness(t *testing.T) {
	o, split := newOutput()
	s := &instance[int64]{out: *o, told: operator.MinWatermark}
	slow := o.Split("1")
	require.NoError(t, o.Collect(split, 5000, 0))
	for _, at := range []int64{0, 30} {
		o.CaughtUp(split, time.Unix(at, 0))
		o.CaughtUp(slow, time.Unix(at, 0))
	}
	wm, idle := s.CurrentWatermark(time.Time{})
	require.EqualValues(t, 3999, wm)
	require.False(t, idle)
	wm, idle = s.CurrentWatermark(time.Time{})
	require.EqualValues(t, 3999, wm)
	require.True(t, idle)
}

type nowhere struct{}

func (nowhere) Collect(int64, int64) error { return nil }

// newOutput is the way of a record from the reader to the chain.
func newOutput() (*output[int64], int) {
	o := &output[int64]{
		tracker:   watermark.NewTracker(watermark.BoundedOutOfOrder(time.Second), watermark.None, nil),
		timestamp: func(v, _ int64) int64 { return v },
		next:      operator.Collector[int64](nowhere{}),
	}
	return o, o.Split("0")
}

func TestCollectDoesNotAllocate(t *testing.T) {
	o, split := newOutput()
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = o.Collect(split, 1, operator.NoTimestamp) }))
}

func BenchmarkCollect(b *testing.B) {
	o, split := newOutput()
	b.ReportAllocs()
	for i := range int64(b.N) {
		_ = o.Collect(split, i, i)
	}
}
