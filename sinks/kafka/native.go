package kafkasink

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/produce"
)

// NewNative makes a client that encodes batches itself and sends them over franz-go's connections. It is the default.
func NewNative(cfg ProducerConfig) (Producer, error) {
	// The user's come first: what the guarantee needs is not theirs to change.
	opts := append(slices.Clone(cfg.Options), kgo.SeedBrokers(cfg.Brokers...), kgo.RequiredAcks(kgo.AllISRAcks()))
	if !cfg.TransactionsV2 {
		opts = append(opts, kgo.MaxVersions(transactionsV1()))
	}
	cl, err := kgo.NewClient(append(opts, pointOptions()...)...)
	if err != nil {
		return nil, fmt.Errorf("make a Kafka client: %w", err)
	}
	w, err := produce.New(produce.Config{
		Client: cl, TransactionalID: cfg.TransactionalID, TransactionTimeout: cfg.TransactionTimeout, TransactionsV2: cfg.TransactionsV2,
		IgnoreKeys: cfg.Partitioner == Sticky, Linger: cfg.Linger, Deadline: cfg.Deadline, BatchBytes: cfg.MaxRecordBytes,
		Delivered: func(d produce.Delivery) { cfg.Delivered(Delivery(d)) },
	})
	if err != nil {
		cl.Close()
		return nil, err
	}
	return &native{w: w, cl: cl, v2: cfg.TransactionsV2}, nil
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

type native struct {
	w       *produce.Writer
	cl      *kgo.Client
	v2      bool
	closing sync.Once
}

var (
	_ Producer        = (*native)(nil)
	_ operator.Pusher = (*native)(nil)
)

func (n *native) Init(ctx context.Context) error { return n.w.Init(ctx) }

// Begin does nothing: the broker begins a transaction with its first batch, or with its first partition.
func (n *native) Begin() error { return nil }

func (n *native) Send(topic string, partition int32, r *Record, millis int64) error {
	return n.w.Send(topic, partition, r.Key, r.Value, r.Headers, millis)
}

// Push implements operator.Pusher.
func (n *native) Push() { n.w.Push() }

func (n *native) Flush(ctx context.Context) error { return n.w.Flush(ctx) }

func (n *native) Identity(context.Context) (Identity, error) {
	id, epoch := n.w.Identity()
	version := EndTxnV1
	if n.v2 {
		version = EndTxnV2
	}
	return Identity{ProducerID: id, ProducerEpoch: epoch, EndTxnVersion: version}, nil
}

func (n *native) Commit(ctx context.Context) error { return n.w.Commit(ctx) }

func (n *native) TransactionsV2() bool { return n.v2 }

// Close may be repeated: a client that is given up is closed at once and with the sink.
func (n *native) Close() {
	n.closing.Do(func() {
		n.w.Close()
		n.cl.Close()
	})
}
