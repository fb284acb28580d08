// Command passthrough is the benchmark's job: the same work as bench/handwritten, as a Weir job.
package main

import (
	"flag"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
	"github.com/weir-stream/weir/stream"
)

func main() { stream.Main(job) }

type record struct {
	key, value []byte
	at         time.Time
}

func job(env *stream.Env) error {
	f := flag.NewFlagSet("passthrough", flag.ContinueOnError)
	brokers := f.String("brokers", "", "bootstrap servers")
	in := f.String("in", "", "input topic")
	out := f.String("out", "", "output topic")
	if err := f.Parse(os.Args[1:]); err != nil {
		return err
	}
	records := stream.From(env, "in", kafkasource.New(*brokers, *in, func(r kafkasource.Record) (record, error) {
		return record{r.Key, r.Value, r.Timestamp}, nil
	}))
	kept := records.Filter(func(r record) bool { return r.value[0] != 0 })
	stream.To(kept, "out", kafkasink.New(*brokers, *out, func(r record) (kafkasink.Record, error) {
		return kafkasink.Record{Key: r.key, Value: r.value, Timestamp: r.at}, nil
	}, kafkasink.ClientOptions(kgo.ProducerBatchCompression(kgo.NoCompression()))))
	return nil
}
