// Command outage writes numbers to a Kafka topic, in order within each partition, with settings under which an outage of some seconds
// outlasts the transaction timeout. docs/guides/rehearse-an-outage.md shows what to do with it.
package main

import (
	"flag"
	"strconv"
	"time"

	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sources/generator"
	"github.com/weir-stream/weir/stream"
)

func main() { stream.Main(job) }

func job(env *stream.Env) error {
	brokers := flag.String("brokers", "127.0.0.1:9092", "host:port of the brokers")
	topic := flag.String("topic", "numbers", "topic that is written")
	count := flag.Uint64("count", 200_000, "how many numbers are written")
	durable := flag.Bool("durable", false, "write output again that the broker has given up")
	flag.Parse()
	env.SetName("outage")

	// A transaction may have to stay open for (1 + 1) × (0.01 s + 3 s) + 8 s = 14.02 s. With checkpoints as often as this, a kill often meets
	// one that is completed and not yet committed; a job in earnest has them at an interval of a second or more.
	checkpoints := stream.DefaultCheckpoints()
	checkpoints.Interval = 10 * time.Millisecond
	checkpoints.Timeout = 3 * time.Second
	checkpoints.ToleratedFailures = 1
	checkpoints.RecoveryBudget = 8 * time.Second
	env.SetCheckpoints(checkpoints)
	options := []kafkasink.Option{kafkasink.TransactionTimeout(15 * time.Second)}
	if *durable {
		options = append(options, kafkasink.DurableOutput())
	}

	numbers := stream.From(env, "numbers", generator.New(func(n uint64) uint64 { return n }).Count(*count).Rate(1000))
	stream.To(numbers, "out", kafkasink.New(*brokers, *topic, encode, options...))
	return nil
}

func encode(n uint64) (kafkasink.Record, error) {
	return kafkasink.Record{Value: strconv.AppendUint(nil, n, 10)}, nil
}
