package kafkasink

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/sinks/kafka/internal/produce"
)

// fetched is what the leader of a partition shows a read_committed reader that begins at a transaction's last record.
type fetched struct {
	// batch is the beginning of the first batch, empty where such a reader has nothing to read yet.
	batch []byte
	// aborted are the aborted transactions that the batch may be part of: producer ids and first offsets.
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
}

// judge says how a transaction ended by what a read_committed reader is shown at its last record, as the reader judges it: the broker has
// an index of aborted transactions, so nothing behind the record is read, however much that is. Nothing is shown while the transaction
// is open. Where its record is no more, markerDeleted.
func judge(id Identity, s span, f fetched) marker {
	if len(f.batch) == 0 {
		return markerNone
	}
	if len(f.batch) < produce.HeaderSize || f.batch[16] != 2 {
		return markerDeleted
	}
	var (
		first    = int64(binary.BigEndian.Uint64(f.batch))
		last     = first + int64(binary.BigEndian.Uint32(f.batch[23:]))
		producer = int64(binary.BigEndian.Uint64(f.batch[43:]))
		epoch    = int16(binary.BigEndian.Uint16(f.batch[51:]))
		records  = binary.BigEndian.Uint32(f.batch[57:])
	)
	// Compaction leaves an empty batch, or a later one; an unclean election or a restored cluster somebody else's.
	if s.Last < first || s.Last > last || producer != id.ProducerID || epoch != id.ProducerEpoch || records == 0 {
		return markerDeleted
	}
	for _, a := range f.aborted {
		if a.ProducerID == id.ProducerID && a.FirstOffset <= s.Last { // a producer has one transaction at a time
			return markerAbort
		}
	}
	return markerCommit
}

// fetchBytes is how much of a partition is asked for; the broker sends one batch at least.
const fetchBytes = 1

// fetch asks the leader of a partition.
func (c *cluster) fetch(ctx context.Context, t preparedTopic, s span, leader int32) (fetched, error) {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = s.Partition, s.Last, fetchBytes
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic, topic.TopicID = t.Name, t.ID
	topic.Partitions = append(topic.Partitions, p)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel = fetchBytes, 1 // read_committed
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, c.cl.Broker(int(leader)))
	if err != nil {
		return fetched{}, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fetched{}, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.Partition == s.Partition {
				return fetched{p.RecordBatches, p.AbortedTransactions}, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return fetched{}, fmt.Errorf("broker %d does not answer for the partition", leader)
}
