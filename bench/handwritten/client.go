package main

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// slab is how many records to produce are allocated at once.
const slab = 1024

// pipe reads some partitions and writes what becomes of them in transactions that commit the positions with them.
type pipe struct {
	cfg     config
	client  *kgo.Client
	id      string
	topicID kadm.TopicID
	next    map[int32]int64 // next offset to read, by partition
	open    bool
	begun   time.Time
	records []kgo.Record
	failed  func(*kgo.Record, error)
}

// recordPool lets the client use its slices of fetched records again.
type recordPool struct{ pool sync.Pool }

// GetRecords implements [kgo.PoolRecords].
func (p *recordPool) GetRecords(n int) []kgo.Record {
	if s, ok := p.pool.Get().(*[]kgo.Record); ok && cap(*s) >= n {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, max(n, 4096))
}

// PutRecords implements [kgo.PoolRecords].
func (p *recordPool) PutRecords(s []kgo.Record) { p.pool.Put(&s) }

func newPipe(ctx context.Context, cfg config, name string, partitions ...int32) (*pipe, error) {
	p := &pipe{cfg: cfg, id: cfg.group() + "-" + name, next: map[int32]int64{}}
	p.failed = func(_ *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err)
		}
	}
	start, err := p.position(ctx, partitions)
	if err != nil {
		return nil, err
	}
	p.client, err = kgo.NewClient(
		kgo.SeedBrokers(cfg.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{cfg.in: start}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxPartitionBytes(4<<20),
		kgo.WithPools(&recordPool{}),
		kgo.TransactionalID(p.id),
		kgo.TransactionTimeout(time.Minute),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(200_000),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.DefaultProduceTopic(cfg.out),
		kgo.DefaultProduceTopicAlways(),
		kgo.RecordPartitioner(kgo.StickyPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	if _, _, err := p.client.ProducerID(ctx); err != nil { // fences an older instance
		return nil, fmt.Errorf("initialise %s: %w", p.id, err)
	}
	return p, nil
}

// begin opens a transaction unless one is open.
func (p *pipe) begin() error {
	if p.open {
		return nil
	}
	p.open, p.begun = true, time.Now()
	return p.client.BeginTransaction()
}

// put writes a value into the open transaction, which it begins if need be.
func (p *pipe) put(ctx context.Context, v []byte) error {
	if err := p.begin(); err != nil {
		return err
	}
	if len(p.records) == 0 {
		p.records = make([]kgo.Record, slab)
	}
	r := &p.records[0]
	p.records = p.records[1:]
	r.Value = v
	p.client.Produce(ctx, r, p.failed)
	return nil
}

// commit ends the open transaction together with the positions.
func (p *pipe) commit(ctx context.Context, next map[int32]int64) error {
	if !p.open {
		return nil
	}
	if err := p.client.Flush(ctx); err != nil {
		return err
	}
	pid, epoch, err := p.client.ProducerID(ctx)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = p.id, p.cfg.group(), pid, epoch, -1
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic, t.TopicID = p.cfg.in, p.topicID
	for partition, offset := range next {
		tp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		tp.Partition, tp.Offset = partition, offset
		t.Partitions = append(t.Partitions, tp)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, tp := range t.Partitions {
			if err := kerr.ErrorForCode(tp.ErrorCode); err != nil {
				return fmt.Errorf("commit offset of %s/%d: %w", p.cfg.in, tp.Partition, err)
			}
		}
	}
	p.open = false
	return p.client.EndTransaction(ctx, kgo.TryCommit)
}

// run hands each record to f for ever, and commits every interval unless f does so itself.
func (p *pipe) run(ctx context.Context, interval time.Duration, f func(*kgo.Record) error) error {
	for {
		poll, cancel := context.WithTimeout(ctx, max(p.cfg.interval/4, 10*time.Millisecond))
		fetches := p.client.PollRecords(poll, 20_000)
		cancel()
		for _, e := range fetches.Errors() {
			if poll.Err() == nil {
				return fmt.Errorf("read %s/%d: %w", e.Topic, e.Partition, e.Err)
			}
		}
		var err error
		fetches.EachRecord(func(r *kgo.Record) {
			if err == nil {
				p.next[r.Partition] = r.Offset + 1 // before f, which may let go of r
				err = f(r)
			}
		})
		if err != nil {
			return err
		}
		if interval > 0 && p.open && time.Since(p.begun) >= interval {
			if err := p.commit(ctx, p.next); err != nil {
				return err
			}
		}
	}
}

// position returns where the group left off, and notes the topic's id, by which brokers since Kafka 4.4 take offsets.
func (p *pipe) position(ctx context.Context, partitions []int32) (map[int32]kgo.Offset, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(p.cfg.brokers...))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, p.cfg.in)
	if err != nil {
		return nil, err
	}
	p.topicID = topics[p.cfg.in].ID
	offsets, err := admin.FetchOffsets(ctx, p.cfg.group())
	for deadline := time.Now().Add(30 * time.Second); kerr.IsRetriable(err) && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
		offsets, err = admin.FetchOffsets(ctx, p.cfg.group())
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the offsets of group %s: %w", p.cfg.group(), err)
	}
	start := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		start[partition] = kgo.NewOffset().AtStart()
		if o, ok := offsets.Lookup(p.cfg.in, partition); ok && o.At >= 0 {
			start[partition] = kgo.NewOffset().At(o.At)
			p.next[partition] = o.At
		}
	}
	return start, nil
}
