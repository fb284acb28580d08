package kafkasource

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
)

// Names of the headers that a dead letter has beside the record's own.
const (
	headerTopic     = "weir-topic"
	headerPartition = "weir-partition"
	headerOffset    = "weir-offset"
	headerError     = "weir-error"
)

// deadLetters copies records that cannot be decoded to another topic, at least once: they are flushed before a checkpoint passes over
// them. It belongs to the task's goroutine.
type deadLetters struct {
	settings settings
	cl       *kgo.Client
	pending  bool
	failure  atomic.Pointer[error]
}

func newDeadLetters(ctx context.Context, s settings) (*deadLetters, error) {
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(s.brokers...), kgo.DefaultProduceTopic(s.deadLetters), kgo.RequiredAcks(kgo.AllISRAcks()),
	}, s.options...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("make a Kafka client: %w", err)
	}
	if _, err := kafkaconn.FindTopics(ctx, cl, s.deadline, kafkaconn.Write, s.deadLetters); err != nil {
		cl.Close()
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return &deadLetters{settings: s, cl: cl}, nil
}

func (d *deadLetters) write(rec *Record, cause error) error {
	if err := d.failure.Load(); err != nil {
		return *err
	}
	d.pending = true
	letter := &kgo.Record{
		Key: rec.Key, Value: rec.Value, Timestamp: rec.Timestamp,
		Headers: append(slices.Clone(rec.Headers),
			kgo.RecordHeader{Key: headerTopic, Value: []byte(rec.Topic)},
			kgo.RecordHeader{Key: headerPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
			kgo.RecordHeader{Key: headerOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)},
			kgo.RecordHeader{Key: headerError, Value: []byte(cause.Error())},
		),
	}
	d.cl.Produce(context.Background(), letter, func(_ *kgo.Record, err error) {
		if err != nil {
			err = fmt.Errorf("write a dead letter to %s: %w", d.settings.deadLetters,
				kafkaconn.OrRefused(err, kafkaconn.Access{Operation: "Write", Topic: d.settings.deadLetters}))
			d.failure.CompareAndSwap(nil, &err)
		}
	})
	return nil
}

func (d *deadLetters) flush() error {
	if !d.pending {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.settings.deadline)
	defer cancel()
	if err := d.cl.Flush(ctx); err != nil {
		return fmt.Errorf("flush dead letters to %s: %w", d.settings.deadLetters, err)
	}
	if err := d.failure.Load(); err != nil {
		return *err
	}
	d.pending = false
	return nil
}

func (d *deadLetters) close() { d.cl.Close() }
