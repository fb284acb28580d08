package kafkasource_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/ingest"
	"github.com/weir-stream/weir/operator/transform"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

// TestPassingThroughDoesNotAllocate holds the whole way of a record, from the fetch through a chain into the batch of a transaction, to no
// allocation at all. What is allocated for batches, of which a broker may make small ones, is far below one in ten records.
func TestPassingThroughDoesNotAllocate(t *testing.T) {
	b := kafkatest.Shared(t)
	in, out := b.Topic(t, 1, nil), b.Topic(t, 2, nil)
	cl, err := b.Client(kgo.DefaultProduceTopic(in), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerLinger(20*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	const records = 100_000 // of which one run is measured, after one that warms up
	for n := range 2 * records {
		cl.Produce(t.Context(), &kgo.Record{Key: fmt.Appendf(nil, "key-%d", n), Value: make([]byte, 100), Timestamp: time.UnixMilli(1_700_000_000_000)}, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))

	type pair struct{ key, value []byte }
	runtime := func(uid string) *operator.Runtime {
		return &operator.Runtime{
			ClusterID: "c", JobID: in, JobName: "j", Attempt: 1, Parallelism: 1, Operator: graph.Operator{UID: uid}, Stats: &operator.Stats{},
			Checkpoints: graph.CheckpointConfig{Enabled: true, Interval: time.Second, Timeout: time.Minute, RecoveryBudget: time.Second},
			Clock:       clock{}, Logger: slog.New(slog.DiscardHandler),
		}
	}
	sink, err := kafkasink.New(b.Addr(), out, func(p pair) (kafkasink.Record, error) {
		return kafkasink.Record{Key: p.key, Value: p.value}, nil
	}).NewInstance(graph.ExactlyOnce)
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close()) }()
	kept := 0
	filter, err := transform.Filter(func(p pair) (bool, error) {
		kept++
		return kept%10 != 0, nil
	}).New([]any{sink.Input()})
	require.NoError(t, err)
	source, err := ingest.New(ingest.Config[pair]{Source: kafkasource.New(b.Addr(), in, func(r kafkasource.Record) (pair, error) {
		return pair{r.Key, r.Value}, nil
	})}).New([]any{filter.Input()})
	require.NoError(t, err)
	defer func() { require.NoError(t, source.Close()) }()
	require.NoError(t, sink.Open(t.Context(), runtime("out")))
	require.NoError(t, source.Open(t.Context(), runtime("in")))

	var fetched any
	reader := source.(operator.SourceInstance)
	run := func() {
		for until := kept + records; kept < until; {
			if fetched == nil {
				if fetched, err = reader.Fetch(context.Background()); err != nil {
					panic(err)
				}
			}
			more, err := reader.Emit(fetched, min(256, until-kept))
			if err != nil {
				panic(err)
			}
			if !more {
				fetched = nil
			}
		}
	}
	perRecord := testing.AllocsPerRun(1, run) / records
	require.Equal(t, 2*records, kept)
	require.Less(t, perRecord, 0.1)
}
