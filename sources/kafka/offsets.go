package kafkasource

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkaconn"
)

// Special timestamps of a ListOffsets request.
const (
	atEnd   int64 = -1
	atStart int64 = -2
)

// retryPause is the time between two requests for what is not known yet.
const retryPause = 200 * time.Millisecond

// topicPartition names a partition by the topic's name, as requests do.
type topicPartition struct {
	topic     string
	partition int32
}

// listOffsets asks for one offset of each partition: its end (the high watermark), its start, or the first offset with a timestamp in
// milliseconds at or after at. The last one is absent where no such record exists.
func listOffsets(ctx context.Context, cl *kgo.Client, parts []topicPartition, at int64) (map[topicPartition]int64, error) {
	if len(parts) == 0 {
		return nil, nil
	}
	byTopic := map[string][]kmsg.ListOffsetsRequestTopicPartition{}
	for _, p := range parts {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p.partition, at
		byTopic[p.topic] = append(byTopic[p.topic], rp)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for topic, ps := range byTopic {
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic, rt.Partitions = topic, ps
		req.Topics = append(req.Topics, rt)
	}
	out := make(map[topicPartition]int64, len(parts))
	for _, shard := range cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("list offsets: %w", kafkaconn.OrRefused(shard.Err, kafkaconn.Access{}))
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("list offsets of %s/%d: %w", t.Topic, p.Partition, kafkaconn.OrRefused(err, kafkaconn.Access{Operation: "Describe", Topic: t.Topic}))
				}
				if p.Offset >= 0 {
					out[topicPartition{t.Topic, p.Partition}] = p.Offset
				}
			}
		}
	}
	return out, nil
}

// mustList is listOffsets for the answers that every partition has. A partition whose leader is being chosen, as after a broker's
// start, is asked again until ctx ends.
func mustList(ctx context.Context, cl *kgo.Client, parts []topicPartition, at int64) (map[topicPartition]int64, error) {
	offsets, err := listOffsets(ctx, cl, parts, at)
	for ; kerr.IsRetriable(err); offsets, err = listOffsets(ctx, cl, parts, at) {
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if _, ok := offsets[p]; !ok {
			return nil, fmt.Errorf("list offsets: no answer for %s/%d", p.topic, p.partition)
		}
	}
	return offsets, nil
}
