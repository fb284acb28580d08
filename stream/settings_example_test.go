package stream_test

import (
	"fmt"
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

func ExampleEnv_SetName() {
	program, err := stream.Plan(func(env *stream.Env) error {
		env.SetName("invoices")
		env.SetMaxParallelism(1024)
		env.SetCheckpointInterval(200 * time.Millisecond)
		in := stream.From(env, "orders", orders())
		stream.To(in, "out", streamtest.NewSink[order]())
		return nil
	}, stream.PlanOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	g := program.Graph
	fmt.Println(g.Name, g.MaxParallelism, g.Checkpoints.Interval)
	// Output: invoices 1024 200ms
}

func ExampleEnv_DisableCheckpoints() {
	program, err := stream.Plan(func(env *stream.Env) error {
		env.SetName("copy")
		env.DisableCheckpoints()
		in := stream.From(env, "orders", orders())
		stream.To(in, "out", streamtest.NewSink[order]()).WithGuarantee(stream.None)
		return nil
	}, stream.PlanOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(program.Graph.Checkpoints.Enabled)
	// Output: false
}

func ExampleKeyedStream_WithKeyCodec() {
	type region uint8
	keys, err := codec.ForKey[region]()
	if err != nil {
		fmt.Println(err)
		return
	}
	sink := streamtest.NewSink[string]()
	err = streamtest.Run(func(env *stream.Env) error {
		in := stream.From(env, "regions", streamtest.Values[region](1, 2, 1))
		byRegion := stream.KeyBy(in, func(r region) region { return r }).WithKeyCodec(keys)
		seen := stream.Process(byRegion, func(s *stream.States[region]) stream.Handler[region, region, string] {
			seen := stream.ValueOf[bool](s, "seen")
			return stream.Handler[region, region, string]{Record: func(c *stream.Context[region, string], r region) error {
				if _, ok, err := seen.Get(); ok || err != nil {
					return err
				}
				if err := seen.Put(true); err != nil {
					return err
				}
				return c.Emit(fmt.Sprint("region ", r))
			}}
		})
		stream.To(seen, "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [region 1 region 2] <nil>
}

func ExampleWindowed_InProcessingTime() {
	pipe, err := streamtest.NewPipe(func(words *stream.Stream[string]) *stream.Stream[string] {
		byWord := stream.KeyBy(words, func(w string) string { return w })
		return stream.Reduce(stream.Window(byWord, window.Tumbling(time.Minute)).InProcessingTime(), func(a, b string) string { return a + b })
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipe.Close()
	if err := pipe.Push("a", "a"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(len(pipe.Take()), "before the minute is over")
	if err := pipe.AdvanceTime(time.Minute); err != nil {
		fmt.Println(err)
	}
	fmt.Println(pipe.Take()[0].Value)
	// Output:
	// 0 before the minute is over
	// aa
}

func ExampleWindowed_FailOnMissingTimestamps() {
	pipe, err := streamtest.NewPipe(func(words *stream.Stream[string]) *stream.Stream[string] {
		byWord := stream.KeyBy(words, func(w string) string { return w })
		return stream.Reduce(stream.Window(byWord, window.Tumbling(time.Minute)).FailOnMissingTimestamps(), func(a, b string) string { return a + b })
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipe.Close()
	fmt.Println(pipe.Push("no timestamp") != nil)
	// Output: true
}
