package streamtest_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

func ExampleRun() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		words := stream.From(env, "words", streamtest.Values("a", "b"))
		stream.To(stream.Map(words, strings.ToUpper), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [A B] <nil>
}

// counts numbers the occurrences of each word.
func counts(s *stream.States[string]) stream.Handler[string, string, string] {
	count := stream.ValueOf[int](s, "count")
	return stream.Handler[string, string, string]{Record: func(c *stream.Context[string, string], word string) error {
		n, _, err := count.Get()
		if err != nil {
			return err
		}
		if err := count.Put(n + 1); err != nil {
			return err
		}
		return c.Emit(fmt.Sprint(word, n+1))
	}}
}

func self(word string) string { return word }

func ExampleStart() {
	source, sink := streamtest.NewSource[string](1), streamtest.NewSink[string]()
	wordcount := func(env *stream.Env) error {
		words := stream.From(env, "words", source)
		stream.To(stream.Process(stream.KeyBy(words, self), counts), "out", sink)
		return nil
	}
	job, err := streamtest.Start(wordcount)
	if err != nil {
		fmt.Println(err)
		return
	}
	source.Push(0, "a", "b")
	fmt.Println(job.Step(), sink.Values(), "not visible before a checkpoint")
	checkpoint, err := job.Checkpoint()
	fmt.Println(err, sink.Values())
	source.Push(0, "a")
	fmt.Println(job.Step())

	// A crash: what was read since the checkpoint is read again, and comes out once.
	fmt.Println(job.Close())
	job, err = streamtest.Start(wordcount, streamtest.From(checkpoint))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Close()
	_, err = job.Checkpoint()
	fmt.Println(err, sink.Values(), "before anything is read again")
	err = job.Step()
	if err == nil {
		_, err = job.Checkpoint()
	}
	fmt.Println(err, sink.Values())
	// Output:
	// <nil> [] not visible before a checkpoint
	// <nil> [a1 b1]
	// <nil>
	// <nil>
	// <nil> [a1 b1] before anything is read again
	// <nil> [a1 b1 a2]
}

func ExampleFrom() {
	pipe, err := streamtest.NewPipe(func(words *stream.Stream[string]) *stream.Stream[string] {
		return stream.Process(stream.KeyBy(words, self), counts).Named("counts")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { pipe.Close() }()
	fmt.Println(pipe.Push("a", "b", "a"))
	checkpoint, err := pipe.Checkpoint()
	if err != nil {
		fmt.Println(err)
		return
	}
	// Pipe.Restore starts from the checkpoint, here with another parallelism.
	fmt.Println(pipe.Restore(checkpoint, streamtest.Parallelism(3)), pipe.Push("a"))
	for _, r := range pipe.Take() {
		fmt.Print(r.Value, " ")
	}
	// Output:
	// <nil>
	// <nil> <nil>
	// a1 b1 a2 a3
}

func ExampleNewPipe() {
	pipe, err := streamtest.NewPipe(func(words *stream.Stream[string]) *stream.Stream[int] {
		windows := stream.Window(stream.KeyBy(words, self), window.Tumbling(time.Minute))
		return stream.Apply(windows, func(_ string, _ window.Span, words []string, emit func(int) error) error {
			return emit(len(words))
		})
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipe.Close()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(pipe.PushAt(start.Add(time.Second), "a"), pipe.PushAt(start.Add(2*time.Second), "a"), pipe.Take())
	fmt.Println(pipe.Watermark(start.Add(time.Minute)))
	for _, r := range pipe.Take() {
		fmt.Println(r.Value, r.At)
	}
	// Output:
	// <nil> <nil> []
	// <nil>
	// 2 2026-01-01 00:00:59.999 +0000 UTC
}

func ExampleAt() {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	job, err := streamtest.Start(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", streamtest.NewSource[int](1)), "out", streamtest.NewSink[int]())
		return nil
	}, streamtest.At(noon))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Close()
	fmt.Println(job.AdvanceTime(time.Minute), job.Now())
	// Output: <nil> 2026-01-01 12:01:00 +0000 UTC
}

func ExampleParallelism() {
	sink := streamtest.NewSink[int]()
	err := streamtest.Run(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", streamtest.Values(1, 2, 3)), "out", sink)
		return nil
	}, streamtest.Parallelism(4))
	fmt.Println(sink.Values(), err)
	// Output: [1 2 3] <nil>
}

func ExampleLogger() {
	err := streamtest.Run(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", streamtest.Values(1)), "out", streamtest.NewSink[int]())
		return nil
	}, streamtest.Logger(nil))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleValues() {
	sink := streamtest.NewSink[string]()
	err := streamtest.Run(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", streamtest.Values("x", "y")), "out", sink)
		return nil
	})
	fmt.Println(sink.Values(), err)
	// Output: [x y] <nil>
}

func ExampleNewSource() {
	source, sink := streamtest.NewSource[string](2), streamtest.NewSink[string]()
	source.Push(0, "from the first split")
	source.PushAt(1, time.Unix(1, 0), "from the second split")
	source.End()
	err := streamtest.Run(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", source), "out", sink)
		return nil
	})
	fmt.Println(len(sink.Values()), err)
	// Output: 2 <nil>
}

func ExampleNewSink() {
	sink := streamtest.NewSink[int]()
	source := streamtest.NewSource[int](1)
	source.PushAt(0, time.Unix(7, 0), 1)
	source.End()
	err := streamtest.Run(func(env *stream.Env) error {
		stream.To(stream.From(env, "in", source), "out", sink)
		return nil
	})
	for _, r := range sink.Records() {
		fmt.Println(r.Value, r.At, err)
	}
	// Output: 1 1970-01-01 00:00:07 +0000 UTC <nil>
}
