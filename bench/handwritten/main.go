// Command handwritten is the yardstick of the pass-through benchmark: what an engineer would write by hand with the same Kafka client
// for the same job, exactly once. It reads one topic, drops records whose filter byte is zero, and writes the rest inside a
// transaction that also commits the offsets, once a second. It has no checkpoints, no state and no failure handling beyond exit.
//
// One client and one transactional id serve each input partition, so that the commit of one overlaps the work of the other: that is
// the fast way to write it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func main() {
	var (
		brokers    = flag.String("brokers", "", "bootstrap servers")
		in         = flag.String("in", "", "input topic")
		out        = flag.String("out", "", "output topic")
		partitions = flag.Int("partitions", 2, "partitions of the input topic")
		interval   = flag.Duration("interval", time.Second, "commit interval")
	)
	flag.Parse()
	errs := make(chan error)
	for p := range *partitions {
		go func() {
			errs <- pass(context.Background(), strings.Split(*brokers, ","), *in, *out, int32(p), *interval)
		}()
	}
	log.Fatal(<-errs)
}

// pass copies one partition for ever.
func pass(ctx context.Context, brokers []string, in, out string, partition int32, interval time.Duration) error {
	group := out + "-handwritten"
	start, topicID, err := position(ctx, brokers, group, in, partition)
	if err != nil {
		return err
	}
	id := fmt.Sprintf("%s-%d", group, partition)
	client, err := kgo.NewClient(
		kgo.SeedBrokers(brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{in: {partition: start}}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(4<<20),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(time.Minute),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(50_000),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.DefaultProduceTopic(out),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, _, err := client.ProducerID(ctx); err != nil {
		return fmt.Errorf("initialise %s: %w", id, err)
	}
	var (
		begun bool
		last  time.Time
		next  int64
	)
	produced := func(_ *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	for {
		poll, cancel := context.WithTimeout(ctx, interval/4)
		fetches := client.PollRecords(poll, 20_000)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if poll.Err() == nil {
				log.Fatal(err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if r.Value[0] == 0 {
				return
			}
			if !begun {
				if err := client.BeginTransaction(); err != nil {
					log.Fatal(err)
				}
				begun, last = true, time.Now()
			}
			client.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value, Timestamp: r.Timestamp}, produced)
		})
		if begun && time.Since(last) >= interval {
			if err := commit(ctx, client, id, group, in, topicID, partition, next); err != nil {
				return err
			}
			begun = false
		}
	}
}

// commit ends the open transaction together with the position in the input.
func commit(ctx context.Context, client *kgo.Client, id, group, topic string, topicID kadm.TopicID, partition int32, next int64) error {
	if err := client.Flush(ctx); err != nil {
		return err
	}
	pid, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = id, group, pid, epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, topicID
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, next
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit offset of %s/%d: %w", topic, partition, err)
			}
		}
	}
	return client.EndTransaction(ctx, kgo.TryCommit)
}

// position returns where the group left off, and the topic's id, by which brokers since Kafka 4.4 take offsets.
func position(ctx context.Context, brokers []string, group, topic string, partition int32) (kgo.Offset, kadm.TopicID, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return kgo.Offset{}, kadm.TopicID{}, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return kgo.Offset{}, kadm.TopicID{}, err
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	for deadline := time.Now().Add(30 * time.Second); kerr.IsRetriable(err) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		offsets, err = admin.FetchOffsets(ctx, group)
	}
	if err != nil {
		return kgo.Offset{}, kadm.TopicID{}, fmt.Errorf("fetch the offsets of group %s: %w", group, err)
	}
	start := kgo.NewOffset().AtStart()
	if o, ok := offsets.Lookup(topic, partition); ok && o.At >= 0 {
		start = kgo.NewOffset().At(o.At)
	}
	return start, topics[topic].ID, nil
}
