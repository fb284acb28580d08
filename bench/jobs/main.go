// Command jobs holds the benchmark's workloads as Weir jobs; package work says what they compute, bench/handwritten is its yardstick.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/bench/internal/work"
	"github.com/weir-stream/weir/graph"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
	"github.com/weir-stream/weir/stream"
	"github.com/weir-stream/weir/stream/window"
)

func main() {
	profileWorker(os.Args)
	stream.Main(job)
}

func job(env *stream.Env) error {
	f := flag.NewFlagSet("jobs", flag.ContinueOnError)
	w := f.String("workload", "", "passthrough, window-count, running-count, bounded-count, json-projection, exchange or copy")
	brokers := f.String("brokers", "", "bootstrap servers")
	in := f.String("in", "", "input topic")
	out := f.String("out", "", "output topic")
	interval := f.Duration("interval", time.Second, "checkpoint interval")
	guarantee := f.String("guarantee", "exactly-once", "exactly-once or at-least-once")
	operators := f.Int("operators", 1, "of copy: operators between the source and the sink, each of which passes on what it gets")
	chained := f.Bool("chained", true, "of copy: the operators call one another; else each is a task of its own")
	f.String("profile", "", "directory for profiles of the workers")
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	env.SetCheckpointInterval(*interval)
	var results *stream.Stream[[]byte]
	switch *w {
	case "passthrough":
		results = values(env, *brokers, *in).Filter(work.Kept)
	case "json-projection":
		results = stream.MapErr(values(env, *brokers, *in), work.ProjectJSON)
	case "window-count":
		results = windowCount(env, *brokers, *in)
	case "running-count", "bounded-count":
		results = counts(env, *brokers, *in, 1)
	case "exchange":
		results = counts(env, *brokers, *in, work.Every)
	case "copy":
		results = copied(values(env, *brokers, *in), *operators, *chained)
	default:
		return fmt.Errorf("there is no workload %q", *w)
	}
	delivery := map[string]graph.Guarantee{"exactly-once": graph.ExactlyOnce, "at-least-once": graph.AtLeastOnce}[*guarantee]
	stream.To(results, "out", kafkasink.New(*brokers, *out, func(v []byte) (kafkasink.Record, error) {
		return kafkasink.Record{Value: v}, nil
	}, kafkasink.Guarantee(delivery), kafkasink.ClientOptions(kgo.ProducerBatchCompression(kgo.NoCompression()))))
	return nil
}

func values(env *stream.Env, brokers, in string) *stream.Stream[[]byte] {
	return stream.From(env, "in", kafkasource.New(brokers, in, func(r kafkasource.Record) ([]byte, error) { return r.Value, nil }))
}

func copied(s *stream.Stream[[]byte], operators int, chained bool) *stream.Stream[[]byte] {
	for n := range operators {
		s = stream.Map(s, func(v []byte) []byte { return v }).Named(fmt.Sprintf("copy-%d", n))
		if !chained {
			s = s.NoChain()
		}
	}
	return s
}

// event is what the keyed workloads need of a record.
type event struct {
	Key, Sequence uint64
	Millis        int64
}

func events(env *stream.Env, brokers, in string) *stream.Stream[event] {
	return stream.From(env, "in", kafkasource.New(brokers, in, func(r kafkasource.Record) (event, error) {
		return event{work.Key(r.Value), work.Sequence(r.Value), int64(work.Millis(r.Value))}, nil
	}))
}

func byKey(e event) uint64 { return e.Key }

func windowCount(env *stream.Env, brokers, in string) *stream.Stream[[]byte] {
	timed := events(env, brokers, in).WithWatermarks(func(e event) time.Time { return time.UnixMilli(e.Millis) }, stream.Monotonous())
	windows := stream.Window(stream.KeyBy(timed, byKey), window.Tumbling(work.WindowMillis*time.Millisecond))
	return stream.Aggregate(windows, countAndSum{}).Named("windows")
}

type total struct{ Count, Sum uint64 }

type countAndSum struct{}

func (countAndSum) Add(t *total, e event) {
	t.Count++
	t.Sum += e.Sequence
}

func (countAndSum) Merge(into *total, from total) {
	into.Count += from.Count
	into.Sum += from.Sum
}

func (countAndSum) Result(key uint64, w window.Span, t total) []byte {
	return work.Row(make([]byte, 0, work.RowSize), key, uint64(w.StartTime().UnixMilli()), t.Count, t.Sum)
}

// counts counts the records of each key, and puts out every count that is a multiple of every.
func counts(env *stream.Env, brokers, in string, every uint64) *stream.Stream[[]byte] {
	return stream.Process(stream.KeyBy(events(env, brokers, in), byKey), func(s *stream.States[uint64]) stream.Handler[uint64, event, []byte] {
		count := stream.ValueOf[uint64](s, "count")
		return stream.Handler[uint64, event, []byte]{Record: func(c *stream.Context[uint64, []byte], e event) error {
			n, _, err := count.Get()
			if err != nil {
				return err
			}
			n++
			if err := count.Put(n); err != nil || n%every != 0 {
				return err
			}
			return c.Emit(work.Row(make([]byte, 0, work.RowSize), e.Key, n, e.Sequence, 0))
		}}
	}).Named("counts")
}
