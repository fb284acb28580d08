package streamtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/sources/generator"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
)

func number(n uint64) uint64 { return n }

func TestAnEndlessSourceIsNoticed(t *testing.T) {
	err := streamtest.Run(func(env *stream.Env) error {
		in := stream.From(env, "in", generator.New(number).Rate(10))
		stream.To(in, "out", streamtest.NewSink[uint64]())
		return nil
	})
	require.ErrorIs(t, err, streamtest.ErrRestless)
}

func TestAGeneratorFollowsTheClock(t *testing.T) {
	sink := streamtest.NewSink[uint64]()
	job, err := streamtest.Start(func(env *stream.Env) error {
		in := stream.From(env, "in", generator.New(number).Rate(10).Splits(1))
		stream.To(in, "out", sink).WithGuarantee(stream.None)
		return nil
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, job.Close()) }()
	require.NoError(t, job.AdvanceTime(10*time.Second))
	require.Len(t, sink.Values(), 101)
}

func TestErrorsStay(t *testing.T) {
	boom := errors.New("boom")
	source := streamtest.NewSource[int](1)
	job, err := streamtest.Start(func(env *stream.Env) error {
		in := stream.From(env, "in", source)
		stream.To(stream.MapErr(in, func(int) (int, error) { return 0, boom }), "out", streamtest.NewSink[int]())
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, job.Step())
	source.Push(0, 1)
	require.ErrorIs(t, job.Step(), boom)
	require.ErrorIs(t, job.Step(), boom)
	_, err = job.Checkpoint()
	require.ErrorIs(t, err, boom)
	require.NoError(t, job.Close())
	require.NoError(t, job.Close())
}

func TestPreparedOutputOfACompletedCheckpointIsCommittedOnce(t *testing.T) {
	source, sink := streamtest.NewSource[int](3), streamtest.NewSink[int]()
	build := func(env *stream.Env) error {
		stream.To(stream.From(env, "in", source), "out", sink)
		return nil
	}
	job, err := streamtest.Start(build, streamtest.Parallelism(2))
	require.NoError(t, err)
	for n := range 30 {
		source.Push(n%3, n)
	}
	require.NoError(t, job.Step())
	cp, err := job.Checkpoint()
	require.NoError(t, err)
	require.NoError(t, job.Close())
	for _, parallelism := range []int{2, 1, 4} {
		job, err = streamtest.Start(build, streamtest.Parallelism(parallelism), streamtest.From(cp))
		require.NoError(t, err)
		require.NoError(t, job.Step())
		_, err = job.Checkpoint()
		require.NoError(t, err)
		require.NoError(t, job.Close())
	}
	var want []int
	for n := range 30 {
		want = append(want, n)
	}
	require.ElementsMatch(t, want, sink.Values())
}
