package ingest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

func sec(n int) time.Time { return time.Unix(int64(n), 0) }

const idle = 10 * time.Second

// rig counts, in windows of ten seconds, what a source emits.
type rig struct {
	source *streamtest.Source[int]
	sink   *streamtest.Sink[string]
	build  func(*stream.Env) error
	*streamtest.Job
}

func newRig(t *testing.T, splits, parallelism int) *rig {
	r := &rig{source: streamtest.NewSource[int](splits), sink: streamtest.NewSink[string]()}
	r.build = func(env *stream.Env) error {
		in := stream.From(env, "in", r.source).WithWatermarks(nil, stream.Monotonous().WithIdleTimeout(idle))
		r.count(in)
		return nil
	}
	r.start(t, parallelism)
	return r
}

func (r *rig) count(in *stream.Stream[int]) {
	all := stream.KeyBy(in, func(int) string { return "all" })
	counts := stream.Apply(stream.Window(all, window.Tumbling(10*time.Second)),
		func(_ string, w window.Span, values []int, emit func(string) error) error {
			return emit(fmt.Sprint(w.Start/1000, ":", len(values)))
		}).Named("counts")
	stream.To(counts, "out", r.sink).WithGuarantee(stream.None)
}

func (r *rig) start(t *testing.T, parallelism int, opts ...streamtest.Option) {
	job, err := streamtest.Start(r.build, append(opts, streamtest.Parallelism(parallelism))...)
	require.NoError(t, err)
	r.Job = job
	t.Cleanup(func() { require.NoError(t, job.Close()) })
}

func (r *rig) restart(t *testing.T, parallelism int) {
	cp, err := r.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	r.start(t, parallelism, streamtest.From(cp), streamtest.At(r.Now()))
}

func (r *rig) late() uint64 { return r.Stats("counts").Late.Load() }

// TestIdlePartitionsAndSurplusSubtasks: neither splits without records nor subtasks without splits hold event time back.
func TestIdlePartitionsAndSurplusSubtasks(t *testing.T) {
	r := newRig(t, 4, 6)
	for s := range 10 {
		r.source.PushAt(0, sec(s), s)
	}
	require.NoError(t, r.Step())
	require.Empty(t, r.sink.Values(), "silent splits hold back until it is known that they are silent")

	// One of them is slow to be read: time alone makes it no idle one, so its backlog is not late.
	r.source.Stall(2, true)
	r.source.PushAt(2, sec(3), 0)
	for s := range 25 {
		r.source.PushAt(0, sec(10+s), s)
		require.NoError(t, r.AdvanceTime(time.Second))
	}
	require.Empty(t, r.sink.Values())
	r.source.Stall(2, false)
	require.NoError(t, r.AdvanceTime(time.Second))
	require.Empty(t, r.sink.Values(), "the backlog is at second 3")
	for range 10 {
		r.source.PushAt(0, sec(35), 0)
		require.NoError(t, r.AdvanceTime(time.Second))
	}
	require.Equal(t, []string{"0:11", "10:10", "20:10"}, r.sink.Values(), "within the idle time")

	// A silent split joins again; its records are on time and counted.
	r.source.PushAt(3, sec(36), 0)
	require.NoError(t, r.Step())
	r.source.PushAt(0, sec(60), 0)
	require.NoError(t, r.Step())
	require.Len(t, r.sink.Values(), 3, "split 3 holds back")
	r.source.PushAt(3, sec(61), 0)
	require.NoError(t, r.Step())
	require.Equal(t, "30:16", r.sink.Values()[3])
	require.Zero(t, r.late())

	// All silent: event time stands still where it is, the open window closes with the end of input.
	require.NoError(t, r.AdvanceTime(time.Hour))
	require.Len(t, r.sink.Values(), 4)
	r.source.End()
	require.NoError(t, r.Step())
	require.True(t, r.Ended())
	require.Equal(t, "60:2", r.sink.Values()[4])
	require.Zero(t, r.late())
}

// TestABurstOnOnePartition: after one burst all partitions are silent, and it must not matter in which order they fall idle.
func TestABurstOnOnePartition(t *testing.T) {
	for busy := range 4 {
		r := newRig(t, 4, 6)
		r.source.PushAt(busy, sec(5), 0)
		r.source.PushAt(busy, sec(10), 0)
		require.NoError(t, r.AdvanceTime(idle-time.Second))
		require.Empty(t, r.sink.Values())
		require.NoError(t, r.AdvanceTime(time.Second))
		require.Equal(t, []string{"0:1"}, r.sink.Values())
		r.source.PushAt((busy+1)%4, sec(11), 0)
		r.source.End()
		require.NoError(t, r.Step())
		require.Equal(t, []string{"0:1", "10:2"}, r.sink.Values())
		require.Zero(t, r.late())
	}
}

func TestASubtaskWithoutSplitsNeverPushesForward(t *testing.T) {
	r := newRig(t, 1, 3)
	r.source.PushAt(0, sec(5), 0)
	r.source.PushAt(0, sec(3), 0)
	require.NoError(t, r.Step())
	require.Empty(t, r.sink.Values())
	r.source.PushAt(0, sec(10), 0)
	require.NoError(t, r.Step())
	require.Equal(t, []string{"0:2"}, r.sink.Values())
	require.Zero(t, r.late())
}

func TestASplitThatIsSlowFromTheStartHoldsBack(t *testing.T) {
	r := newRig(t, 2, 1)
	r.source.Stall(1, true)
	r.source.PushAt(1, sec(3), 0)
	r.source.PushAt(0, sec(50), 0)
	require.NoError(t, r.AdvanceTime(time.Hour))
	require.Empty(t, r.sink.Values())
	r.source.Stall(1, false)
	r.source.PushAt(1, sec(50), 0)
	require.NoError(t, r.Step())
	require.Equal(t, []string{"0:1"}, r.sink.Values())
	require.Zero(t, r.late())
}

func TestWatermarksSurviveARestore(t *testing.T) {
	for _, parallelism := range []int{2, 1, 3} {
		r := newRig(t, 2, 2)
		r.source.PushAt(0, sec(1), 0)
		r.source.PushAt(1, sec(12), 0)
		r.source.PushAt(0, sec(15), 0)
		require.NoError(t, r.Step())
		require.Equal(t, []string{"0:1"}, r.sink.Values())
		r.restart(t, parallelism)
		r.source.PushAt(0, sec(2), 0) // late: its window has fired
		require.NoError(t, r.Step())
		r.source.PushAt(0, sec(20), 0)
		r.source.PushAt(1, sec(20), 0)
		require.NoError(t, r.Step())
		require.Equal(t, []string{"0:1", "10:2"}, r.sink.Values(), "nothing fires twice, nothing is lost")
		require.EqualValues(t, 1, r.late())
	}
}

func TestSplitsFoundLater(t *testing.T) {
	r := newRig(t, 1, 2)
	r.source.PushAt(0, sec(5), 0)
	require.NoError(t, r.Step())
	added := r.source.AddSplit()
	r.source.PushAt(added, sec(6), 0)
	require.NoError(t, r.Step())
	r.source.PushAt(0, sec(10), 0)
	require.NoError(t, r.Step())
	require.Empty(t, r.sink.Values(), "the new split is at second 6")
	r.restart(t, 3)
	r.source.PushAt(added, sec(10), 0)
	require.NoError(t, r.Step())
	require.Equal(t, []string{"0:2"}, r.sink.Values(), "its position was in the checkpoint")
	// A new split that stays silent stalls nobody for good.
	r.source.AddSplit()
	r.source.PushAt(0, sec(20), 0)
	r.source.PushAt(added, sec(20), 0)
	require.NoError(t, r.Step())
	for range 11 {
		r.source.PushAt(0, sec(20), 0)
		r.source.PushAt(added, sec(20), 0)
		require.NoError(t, r.AdvanceTime(time.Second))
	}
	require.Equal(t, []string{"0:2", "10:2"}, r.sink.Values())
	require.Zero(t, r.late())
}

// TestAssignerBehindASource: a timestamp assigner knows from its input whether it is idle, also where its subtask has no split.
func TestAssignerBehindASource(t *testing.T) {
	r := &rig{source: streamtest.NewSource[int](2), sink: streamtest.NewSink[string]()}
	r.build = func(env *stream.Env) error {
		in := stream.Map(stream.From(env, "in", r.source), func(n int) int { return n })
		r.count(in.WithWatermarks(func(n int) time.Time { return sec(n) }, stream.BoundedOutOfOrder(2*time.Second)))
		return nil
	}
	r.start(t, 3)
	r.source.Push(0, 1, 12)
	r.source.Push(1, 2, 11)
	require.NoError(t, r.Step())
	require.Empty(t, r.sink.Values(), "two seconds of slack")
	r.source.Push(0, 14)
	require.NoError(t, r.Step())
	require.Empty(t, r.sink.Values(), "the slower subtask decides")
	r.source.Push(1, 12)
	require.NoError(t, r.Step())
	require.Equal(t, []string{"0:2"}, r.sink.Values())
	r.restart(t, 3)
	r.source.Push(0, 3)
	require.NoError(t, r.Step())
	require.EqualValues(t, 1, r.late(), "the watermark survives a restore")
}
