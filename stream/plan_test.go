package stream_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

// badSink is a sink whose answers a test sets.
type badSink[T any] struct {
	sinks.Sink[T]
	guarantee graph.Guarantee
	supports  []graph.Guarantee
	validate  error
	resource  string
}

func newBadSink[T any](supports ...graph.Guarantee) *badSink[T] {
	return &badSink[T]{Sink: streamtest.NewSink[T](), supports: supports}
}

func (s *badSink[T]) Kind() string                             { return "bad" }
func (s *badSink[T]) Guarantee() graph.Guarantee               { return s.guarantee }
func (s *badSink[T]) Validate(sources.JobSettings) error       { return s.validate }
func (s *badSink[T]) Resource() string                         { return s.resource }
func (s *badSink[T]) TransactionSlots(sources.JobSettings) int { return 7 }
func (s *badSink[T]) Supports(g graph.Guarantee) bool {
	for _, have := range s.supports {
		if have == g {
			return true
		}
	}
	return false
}

func plan(job func(*stream.Env)) (*operator.Program, error) {
	return stream.Plan(func(env *stream.Env) error { job(env); return nil }, stream.PlanOptions{Name: "test"})
}

func numbers(env *stream.Env) *stream.Stream[int] {
	return stream.From(env, "numbers", streamtest.Values(1, 2, 3))
}

func findOperator(t *testing.T, p *operator.Program, uid string) graph.Operator {
	for _, v := range p.Graph.Vertices {
		for _, o := range v.Operators {
			if o.UID == uid {
				return o
			}
		}
	}
	t.Fatalf("no operator %q", uid)
	return graph.Operator{}
}

func TestGuaranteesAreNeverLoweredSilently(t *testing.T) {
	all := []graph.Guarantee{graph.ExactlyOnce, graph.AtLeastOnce, graph.None}
	for name, c := range map[string]struct {
		sink        *badSink[int]
		checkpoints bool
		choose      graph.Guarantee
		want        graph.Guarantee
		err         string
	}{
		"default with checkpoints":      {newBadSink[int](all...), true, 0, graph.ExactlyOnce, ""},
		"default without checkpoints":   {newBadSink[int](all...), false, 0, graph.None, ""},
		"chosen":                        {newBadSink[int](all...), true, graph.AtLeastOnce, graph.AtLeastOnce, ""},
		"the sink's own":                {&badSink[int]{Sink: streamtest.NewSink[int](), supports: all, guarantee: graph.None}, true, 0, graph.None, ""},
		"chosen over the sink's own":    {&badSink[int]{Sink: streamtest.NewSink[int](), supports: all, guarantee: graph.None}, true, graph.ExactlyOnce, graph.ExactlyOnce, ""},
		"a sink that cannot":            {newBadSink[int](graph.AtLeastOnce), true, 0, 0, "WithGuarantee(stream.AtLeastOnce)"},
		"exactly-once, checkpoints off": {newBadSink[int](all...), false, graph.ExactlyOnce, 0, "checkpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := plan(func(env *stream.Env) {
				if !c.checkpoints {
					env.DisableCheckpoints()
				}
				stream.To(numbers(env), "out", c.sink).WithGuarantee(c.choose)
			})
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, `"out"`)
				return
			}
			require.NoError(t, err)
			o := findOperator(t, p, "out")
			require.Equal(t, c.want, o.Guarantee)
			if c.want == graph.ExactlyOnce {
				require.Equal(t, 7, o.TransactionSlots)
			} else {
				require.Zero(t, o.TransactionSlots)
			}
		})
	}
}

func TestAllProblemsOfAJobTogether(t *testing.T) {
	invalid := newBadSink[int](graph.ExactlyOnce)
	invalid.validate = errors.Join(errors.New("the timeout is too small"), fmt.Errorf("%w: and so is %w", errors.New("a"), errors.New("b")))
	first, second := newBadSink[int](graph.ExactlyOnce), newBadSink[int](graph.ExactlyOnce)
	first.resource, second.resource = "prefix", "prefix"
	_, err := plan(func(env *stream.Env) {
		in := numbers(env)
		stream.To(in, "invalid", invalid)
		stream.To(in, "first", first)
		stream.To(in, "second", second)
		stream.To(in, "out", streamtest.NewSink[int]()).Parallelism(1000)
		stream.To(in, "out", streamtest.NewSink[int]())
		stream.To(stream.Map(in, func(int) chan int { return nil }).NoChain(), "channels", newBadSink[chan int](graph.None)).NoChain()
		byKey := stream.KeyBy(in, func(n int) int { return n })
		stream.To(stream.Reduce(stream.Window(byKey, window.Tumbling(time.Minute)).WithLateness(-1), func(a, _ int) int { return a }), "windows", streamtest.NewSink[int]())
		stream.To(stream.Reduce(stream.Window(byKey, window.Tumbling(time.Minute)).InProcessingTime(), func(a, _ int) int { return a }), "more", streamtest.NewSink[int]())
	})
	var errs graph.Errors
	require.ErrorAs(t, err, &errs)
	for _, want := range []string{
		`operator "invalid": the timeout is too small`, `operator "invalid": a: and so is b`, `"prefix"`, `uid "out"`,
		"parallelism 1000", "lateness is negative", "has no watermarks", "ambiguous", "the bad sink cannot be exactly-once",
	} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorIs(t, err, graph.ErrUnnamedState)
	require.ErrorIs(t, err, graph.ErrSharedResource)
}

func TestCodecsAreNeededBetweenTasksOnly(t *testing.T) {
	describe := func(apart bool) func(*stream.Env) {
		return func(env *stream.Env) {
			channels := stream.Map(numbers(env), func(int) chan int { return nil })
			back := stream.Map(channels, func(chan int) int { return 1 })
			if apart {
				back.NoChain()
			}
			stream.To(back, "out", streamtest.NewSink[int]())
		}
	}
	_, err := plan(describe(false))
	require.NoError(t, err)
	_, err = plan(describe(true))
	require.ErrorContains(t, err, "WithCodec")
}

func TestNamesOfState(t *testing.T) {
	p, err := plan(func(env *stream.Env) {
		in := stream.Map(numbers(env), func(n int) int { return n })
		byKey := stream.KeyBy(in, func(n int) int { return n })
		sums := stream.Reduce(stream.Window(byKey, window.Tumbling(time.Minute)).InProcessingTime(), func(a, b int) int { return a + b })
		stream.To(sums, "out", streamtest.NewSink[int]())
	})
	require.NoError(t, err)
	require.True(t, findOperator(t, p, "numbers-window").Stateful)
}

func TestTheSameJobHasTheSameFingerprint(t *testing.T) {
	describe := func(at time.Time) string {
		p, err := plan(func(env *stream.Env) {
			in := stream.From(env, "in", streamtest.Values(1)).WithWatermarks(func(int) time.Time { return at }, stream.Monotonous())
			byKey := stream.KeyBy(in, func(n int) string { return fmt.Sprint(n) })
			sums := stream.Reduce(stream.Window(byKey, window.Tumbling(time.Minute)), func(a, b int) int { return a + b })
			stream.To(sums.Union(in), "out", streamtest.NewSink[int]())
		})
		require.NoError(t, err)
		return p.Graph.Fingerprint
	}
	require.Equal(t, describe(time.Unix(1, 0)), describe(time.Unix(2, 0)))
}

func TestOverrides(t *testing.T) {
	describe := func(env *stream.Env) error {
		env.SetName("mine")
		env.SetParallelism(2)
		env.SetMaxParallelism(16)
		env.SetCheckpointInterval(5 * time.Second)
		stream.To(numbers(env).Parallelism(3), "out", streamtest.NewSink[int]())
		return nil
	}
	p, err := stream.Plan(describe, stream.PlanOptions{DefaultName: "default"})
	require.NoError(t, err)
	require.Equal(t, "mine", p.Graph.Name)
	require.Equal(t, 16, p.Graph.MaxParallelism)
	require.Equal(t, 5*time.Second, p.Graph.Checkpoints.Interval)
	require.Equal(t, 3, p.Graph.Vertices[0].Parallelism)
	require.Equal(t, 2, p.Graph.Vertices[1].Parallelism)
	p, err = stream.Plan(describe, stream.PlanOptions{Name: "given", Parallelism: 4})
	require.NoError(t, err)
	require.Equal(t, "given", p.Graph.Name)
	require.Equal(t, 3, p.Graph.Vertices[0].Parallelism)
	require.Equal(t, 4, p.Graph.Vertices[1].Parallelism)
}

func TestErrorsAndPanicsOfTheJobFunction(t *testing.T) {
	boom := errors.New("boom")
	_, err := stream.Plan(func(*stream.Env) error { return boom }, stream.PlanOptions{Name: "test"})
	require.ErrorIs(t, err, boom)
	_, err = stream.Plan(func(*stream.Env) error { panic("oops") }, stream.PlanOptions{Name: "test"})
	require.ErrorContains(t, err, "oops")
	_, err = stream.Plan(func(*stream.Env) error { return nil }, stream.PlanOptions{Name: "test"})
	require.ErrorIs(t, err, graph.ErrNoSource)
	require.ErrorIs(t, err, graph.ErrNoSink)
}

func TestASinkOfAnotherTypeIsRefused(t *testing.T) {
	_, err := plan(func(env *stream.Env) {
		texts := streamtest.NewSink[string]()
		stream.To[int](numbers(env), "out", texts)
	})
	require.ErrorContains(t, err, "does not take records of type int")
}
