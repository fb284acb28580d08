package kafkasink

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// NewFranz makes a franz-go client. It is the default.
func NewFranz(cfg ProducerConfig) (Producer, error) {
	f := &franz{cfg: cfg}
	f.promise = f.done
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(cfg.Linger),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 { return int32(cfg.MaxRecordBytes(topic)) }),
		kgo.RecordPartitioner(partitioner{cfg.Partitioner}),
		// The tracker's window bounds what is buffered; the client itself must never make a record wait.
		kgo.MaxBufferedRecords(1 << 30),
	}
	if cfg.TransactionalID != "" {
		opts = append(opts, kgo.TransactionalID(cfg.TransactionalID), kgo.TransactionTimeout(cfg.TransactionTimeout))
	}
	if !cfg.TransactionsV2 {
		opts = append(opts, kgo.MaxVersions(transactionsV1()))
	}
	opts = append(opts, pointOptions()...)
	cl, err := kgo.NewClient(append(opts, cfg.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("make a Kafka client: %w", err)
	}
	f.cl = cl
	return f, nil
}

// transactionsV1 caps the requests whose newer versions mean the second transaction protocol.
func transactionsV1() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(0, 11) // Produce
	v.SetMaxKeyVersion(24, 3) // AddPartitionsToTxn
	v.SetMaxKeyVersion(26, EndTxnV1)
	v.SetMaxKeyVersion(28, 4) // TxnOffsetCommit
	return v
}

type franz struct {
	cfg     ProducerConfig
	cl      *kgo.Client
	promise func(*kgo.Record, error)
	slab    []kgo.Record
	closing sync.Once
}

var _ Producer = (*franz)(nil)

func (f *franz) Init(ctx context.Context) error {
	if f.cfg.TransactionalID == "" {
		return nil
	}
	_, _, err := f.cl.ProducerID(ctx)
	return err
}

func (f *franz) Begin() error { return f.cl.BeginTransaction() }

// slabRecords is how many records are allocated at a time.
const slabRecords = 256

func (f *franz) Send(topic string, partition int32, r Record, timestamp time.Time) error {
	if len(f.slab) == 0 {
		f.slab = make([]kgo.Record, slabRecords)
	}
	rec := &f.slab[0]
	f.slab = f.slab[1:]
	rec.Topic, rec.Partition, rec.Timestamp = topic, partition, timestamp
	rec.Key, rec.Value, rec.Headers = r.Key, r.Value, r.Headers
	f.cl.Produce(context.Background(), rec, f.promise)
	return nil
}

func (f *franz) done(r *kgo.Record, err error) {
	f.cfg.Delivered(Delivery{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Records: 1, Bytes: len(r.Key) + len(r.Value), Err: err})
}

func (f *franz) Flush(ctx context.Context) error { return f.cl.Flush(ctx) }

func (f *franz) Identity(ctx context.Context) (Identity, error) {
	id, epoch, err := f.cl.ProducerID(ctx)
	if err != nil {
		return Identity{}, err
	}
	version := EndTxnV1
	if f.TransactionsV2() {
		version = EndTxnV2
	}
	return Identity{ProducerID: id, ProducerEpoch: epoch, EndTxnVersion: version}, nil
}

func (f *franz) Commit(ctx context.Context) error { return f.cl.EndTransaction(ctx, kgo.TryCommit) }

func (f *franz) TransactionsV2() bool { return f.cfg.TransactionsV2 }

// Close may be repeated: a client that is given up is closed at once and with the sink.
func (f *franz) Close() { f.closing.Do(f.cl.Close) }

// partitioner honours a partition that the record names and else leaves the choice to the client's own partitioner.
type partitioner struct{ kind Partitioner }

func (p partitioner) ForTopic(topic string) kgo.TopicPartitioner {
	inner := kgo.StickyKeyPartitioner(nil)
	if p.kind == Sticky {
		inner = kgo.StickyPartitioner()
	}
	return &topicPartitioner{inner.ForTopic(topic)}
}

type topicPartitioner struct{ inner kgo.TopicPartitioner }

func (p *topicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.inner.RequiresConsistency(r)
}

func (p *topicPartitioner) Partition(r *kgo.Record, n int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.inner.Partition(r, n)
}

func (p *topicPartitioner) OnNewBatch() {
	if b, ok := p.inner.(kgo.TopicPartitionerOnNewBatch); ok {
		b.OnNewBatch()
	}
}
