package streamtest_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/streamtest"
	"github.com/weir-stream/weir/stream/window"
)

func ExampleSource_Stall() {
	source, sink := streamtest.NewSource[string](1), streamtest.NewSink[string]()
	job, err := streamtest.Start(func(env *stream.Env) error {
		stream.To(stream.Map(stream.From(env, "words", source), strings.ToUpper), "out", sink)
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer job.Close()
	show := func(what string) {
		if err := job.Step(); err != nil {
			fmt.Println(err)
		}
		if _, err := job.Checkpoint(); err != nil {
			fmt.Println(err)
		}
		fmt.Println(what, sink.Values())
		sink.Clear()
	}
	source.Stall(0, true)
	source.Push(0, "slow")
	more := source.AddSplit()
	source.Push(more, "new")
	show("one split is slow:")
	source.Stall(0, false)
	source.End()
	show("it has caught up:")
	fmt.Println(job.Ended())
	// Output:
	// one split is slow: [NEW]
	// it has caught up: [SLOW]
	// true
}

func ExampleJob_Stats() {
	pipe, err := streamtest.NewPipe(func(words *stream.Stream[string]) *stream.Stream[string] {
		byWord := stream.KeyBy(words, self)
		return stream.Reduce(stream.Window(byWord, window.Tumbling(time.Minute)), func(a, _ string) string { return a }).Named("minutes")
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pipe.Close()
	if err := pipe.Watermark(time.Unix(120, 0)); err != nil {
		fmt.Println(err)
	}
	if err := pipe.PushAt(time.Unix(1, 0), "late"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(pipe.Stats("minutes").Late.Load(), "late record")
	// Output: 1 late record
}
