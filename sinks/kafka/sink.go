package kafkasink

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
)

// Header is a record header. A nil Value is null, which differs from an empty one.
type Header = kgo.RecordHeader

// Record is what the sink writes. Nothing that it refers to may be modified afterwards: the client keeps it until the broker has
// accepted it.
type Record struct {
	// Topic is the topic; empty for the sink's.
	Topic string
	// Partition is the partition; the zero value leaves it to the partitioner.
	Partition PartitionChoice
	// Key and Value are null when nil, which differs from empty.
	Key, Value []byte
	// Headers keep their order and repeats.
	Headers []Header
	// Timestamp is the record's time in Kafka; the zero value takes the event time, or the time of writing when there is none.
	Timestamp time.Time
}

// PartitionChoice is a partition or, as the zero value, none.
type PartitionChoice struct{ oneBased int32 }

// ToPartition chooses partition n.
func ToPartition(n int32) PartitionChoice { return PartitionChoice{n + 1} }

// Chosen returns the partition, or AnyPartition.
func (p PartitionChoice) Chosen() int32 { return p.oneBased - 1 }

// AnyPartition stands for a partition that the partitioner chooses.
const AnyPartition int32 = -1

// New makes a sink that writes to a topic. brokers lists host:port pairs, separated by commas. encode turns a value into a record; an
// error of it fails the task.
func New[T any](brokers, topic string, encode func(T) (Record, error), opts ...Option) sinks.Sink[T] {
	s := newSettings(brokers, topic, opts)
	return sinks.TwoPhase(sinks.TwoPhaseConfig[T, *txn]{
		Kind:      "kafka",
		Target:    "Kafka at " + strings.Join(s.brokers, ","),
		Guarantee: s.guarantee, DurableOutput: s.durable,
		Validate: s.validate,
		Slots:    func(job sources.JobSettings) int { return slotBound(job.Checkpoints) },
		New: func() (sinks.TwoPhaseCommitSink[T, *txn], error) {
			return &transactional[T]{encoder: encoder[T]{encode: encode, settings: s}}, nil
		},
		NewWriter: func() (sinks.Writer[T], error) {
			return &plain[T]{encoder: encoder[T]{encode: encode, settings: s}}, nil
		},
	})
}
