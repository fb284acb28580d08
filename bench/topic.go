package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
)

const (
	partitions = 2
	// size of each record's value in bytes.
	size = 100
)

// fill writes n records, about one in ten of which the job drops, and returns how many it keeps.
func fill(ctx context.Context, b *kafkatest.Broker, topic string, n int) (kept int64, err error) {
	client, err := b.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	failed := make(chan error, 1)
	for i := range n {
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(rnd.Uint32())
		}
		value[0] = byte(rnd.IntN(10))
		if value[0] != 0 {
			kept++
		}
		client.Produce(ctx, &kgo.Record{Partition: int32(i % partitions), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	select {
	case err := <-failed:
		return 0, fmt.Errorf("fill %s: %w", topic, err)
	default:
		return kept, nil
	}
}

// stable returns the sum of the last stable offsets of a topic: committed records and their markers.
func stable(ctx context.Context, admin *kadm.Client, topic string) (int64, error) {
	offsets, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var total int64
	offsets.Each(func(o kadm.ListedOffset) { total += o.Offset })
	return total, offsets.Error()
}

// count returns the number of committed records of a topic.
func count(ctx context.Context, b *kafkatest.Broker, topic string) (int64, error) {
	client, err := b.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	var n int64
	left := map[int32]bool{}
	ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset > 0 })
	for {
		open := false
		for _, l := range left {
			open = open || l
		}
		if !open {
			return n, nil
		}
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			if end, ok := ends.Lookup(topic, r.Partition); ok && r.Offset >= end.Offset-1 {
				left[r.Partition] = false
			}
		})
	}
}
