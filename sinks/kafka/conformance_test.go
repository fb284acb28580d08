package kafkasink_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/sinks"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/kafka/confluent"
	"github.com/weir-stream/weir/sinks/sinktest"
)

// clients are the clients that every test of a writer runs with.
var clients = map[string]kafkasink.Option{
	"native":     kafkasink.Client(kafkasink.NewNative),
	"librdkafka": kafkasink.Client(confluent.New(nil)),
}

func encodeNumber(n int) (kafkasink.Record, error) {
	return kafkasink.Record{Value: strconv.AppendInt(nil, int64(n), 10)}, nil
}

func readNumbers(b *kafkatest.Broker, topic string) func(context.Context) ([]int, error) {
	return func(ctx context.Context) ([]int, error) {
		records, err := b.ReadCommitted(ctx, topic)
		if err != nil {
			return nil, err
		}
		var out []int
		for _, r := range records {
			n, err := strconv.Atoi(string(r.Value))
			if err != nil {
				return nil, err
			}
			out = append(out, n)
		}
		return out, nil
	}
}

func numberOutput(t *testing.T, b *kafkatest.Broker, opts ...kafkasink.Option) sinktest.Output {
	topic := b.Topic(t, 1, nil)
	return sinktest.Output{
		Sink: func() sinks.Sink[int] {
			return kafkasink.New(b.Addr(), topic, encodeNumber, append([]kafkasink.Option{kafkasink.TransactionTimeout(5 * time.Minute)}, opts...)...)
		},
		Read:    readNumbers(b, topic),
		Settled: func(ctx context.Context) error { return b.WaitNoOpenTransactions(ctx, topic) },
	}
}

func TestConformance(t *testing.T) {
	b := kafkatest.Shared(t)
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(t *testing.T) sinktest.Output { return numberOutput(t, b, client) })
		})
	}
}

func TestConformanceWithoutTransactionsV2(t *testing.T) {
	b := kafkatest.StartFor(t, kafkatest.Config{Features: map[string]int{"transaction.version": 0}})
	sinktest.Run(t, func(t *testing.T) sinktest.Output { return numberOutput(t, b) })
	require.NotZero(t, b.PID())
}
