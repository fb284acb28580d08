// Package confluent lets the Kafka sink write through confluent-kafka-go, that is librdkafka, for sites that need its plugins or
// support. Only jobs that import it need cgo.
//
// librdkafka speaks the first transaction protocol, so every transactional id is initialised anew, by a new client, before it is used
// again. One goroutine of the package's own per client turns delivery reports into calls of ProducerConfig.Delivered.
package confluent

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/weir-stream/weir/internal/kafkaconn"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
)

// New returns a constructor of librdkafka clients to pass to kafkasink.Client. config holds librdkafka properties, such as compression,
// that are added to the sink's own; it may be nil. Login and certificates come from kafkasink.WithLogin and kafkasink.WithTLS, which
// also serve the sink's own connection, a franz-go client.
func New(config map[string]any) kafkasink.NewProducer {
	return func(cfg kafkasink.ProducerConfig) (kafkasink.Producer, error) {
		settings := kafka.ConfigMap{}
		secured, err := secure(cfg.Security)
		if err != nil {
			return nil, err
		}
		maps.Copy(settings, secured)
		for k, v := range config {
			settings[k] = v
		}
		maps.Copy(settings, kafka.ConfigMap{
			"bootstrap.servers":  strings.Join(cfg.Brokers, ","),
			"acks":               "all",
			"enable.idempotence": true,
			"linger.ms":          strconv.FormatFloat(float64(cfg.Linger.Microseconds())/1000, 'f', 3, 64),
			"partitioner":        partitioner(cfg.Partitioner),
			// The sink bounds what is outstanding and checks sizes itself; the client must neither make a record wait nor refuse it.
			"queue.buffering.max.messages": 0,
			"queue.buffering.max.kbytes":   2097151,
			"message.max.bytes":            1000000000,
			"batch.size":                   1000000,
			"message.timeout.ms":           0,
			"go.delivery.report.fields":    "all",
			"go.logs.channel.enable":       true,
			// By default the two take 24 MB of each client, of which there is a new one with every checkpoint.
			"go.produce.channel.size": 1, // unused
			"go.events.channel.size":  eventsAhead,
		})
		if cfg.TransactionalID != "" {
			settings["transactional.id"] = cfg.TransactionalID
			settings["transaction.timeout.ms"] = int(cfg.TransactionTimeout.Milliseconds())
			delete(settings, "message.timeout.ms") // bound to the transaction's own timeout
		}
		return &producer{cfg: cfg, settings: settings}, nil
	}
}

// eventsAhead is how many delivery reports may wait for their goroutine; librdkafka keeps the others.
const eventsAhead = 1024

func partitioner(p kafkasink.Partitioner) string {
	if p == kafkasink.Sticky {
		return "random"
	}
	return "murmur2_random"
}

type producer struct {
	cfg      kafkasink.ProducerConfig
	settings kafka.ConfigMap
	p        *kafka.Producer
	done     chan struct{} // closed when all reports are told
	logged   chan struct{} // closed when the log has ended
	pending  atomic.Int64
	closed   atomic.Bool
	refused  atomic.Pointer[error] // the first refusal of login or certificate, of which librdkafka tells beside the calls
}

var _ kafkasink.Producer = (*producer)(nil)

// start makes the librdkafka handle: the constructor itself does no I/O and starts no threads.
func (p *producer) start() error {
	if p.p != nil {
		return nil
	}
	handle, err := kafka.NewProducer(&p.settings)
	if err != nil {
		return fmt.Errorf("make a librdkafka client: %w", err)
	}
	p.p = handle
	p.done = make(chan struct{})
	p.logged = make(chan struct{})
	go p.report()
	go p.log()
	return nil
}

// report turns librdkafka's events into deliveries until the client is closed.
func (p *producer) report() {
	defer close(p.done)
	for e := range p.p.Events() {
		m, ok := e.(*kafka.Message)
		if !ok {
			p.note(e)
			continue
		}
		tp := m.TopicPartition
		p.cfg.Delivered(kafkasink.Delivery{
			Topic: *tp.Topic, Partition: tp.Partition, Offset: int64(tp.Offset), Records: 1, Bytes: size(m), Err: p.cause(tp.Error),
		})
		p.pending.Add(-1)
	}
}

// size is what the record of a message counts for.
func size(m *kafka.Message) int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// log passes librdkafka's log on. What matters comes as an error as well, so everything is for debugging.
func (p *producer) log() {
	defer close(p.logged)
	for e := range p.p.Logs() {
		p.cfg.Logger.Debug("librdkafka", "client", e.Name, "level", e.Level, "tag", e.Tag, "message", e.Message)
	}
}

func (p *producer) Init(ctx context.Context) error {
	if err := p.start(); err != nil {
		return err
	}
	if p.cfg.TransactionalID == "" {
		return nil
	}
	return p.inSteps(ctx, p.p.InitTransactions)
}

func (p *producer) Begin() error { return p.cause(p.p.BeginTransaction()) }

func (p *producer) Send(topic string, partition int32, r *kafkasink.Record, millis int64) error {
	if err := p.start(); err != nil {
		return err
	}
	m := &kafka.Message{
		TopicPartition: kafka.TopicPartition{Topic: &topic, Partition: partition},
		Key:            r.Key, Value: r.Value, Timestamp: time.UnixMilli(millis),
	}
	if partition < 0 {
		m.TopicPartition.Partition = kafka.PartitionAny
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	p.pending.Add(1)
	if err := p.p.Produce(m, nil); err != nil {
		p.pending.Add(-1)
		err = p.cause(err)
		// The tracker counts the record as sent; this is its outcome.
		p.cfg.Delivered(kafkasink.Delivery{Topic: topic, Partition: partition, Records: 1, Bytes: r.Size(), Err: err})
		return fmt.Errorf("hand a record to librdkafka: %w", err)
	}
	return nil
}

// flushStep is how long one call of librdkafka's flush waits in milliseconds before the context is looked at.
const flushStep = 100

// Flush waits for librdkafka and then for the reports, which alone tell of failures.
func (p *producer) Flush(ctx context.Context) error {
	if p.p == nil {
		return nil
	}
	for p.pending.Load() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		if refused := p.refused.Load(); refused != nil {
			return *refused
		}
		p.p.Flush(flushStep)
	}
	return nil
}

// Identity asks the coordinator, since librdkafka does not tell.
func (p *producer) Identity(ctx context.Context) (kafkasink.Identity, error) {
	id, err := p.cfg.Writing(ctx)
	id.EndTxnVersion = kafkasink.EndTxnV1
	return id, err
}

func (p *producer) Commit(ctx context.Context) error {
	return p.inSteps(ctx, p.p.CommitTransaction)
}

// step is how long one blocking call of librdkafka waits before the context is looked at.
const step = 500 * time.Millisecond

// pause is the wait before a call is repeated that failed in passing.
const pause = 20 * time.Millisecond

// inSteps makes a transactional call end with its context, of which librdkafka looks at the deadline only. A call that timed out, or
// that librdkafka says may be repeated, goes on where it was, unless a broker has refused us meanwhile: librdkafka tries for ever.
func (p *producer) inSteps(ctx context.Context, call func(context.Context) error) error {
	for {
		short, cancel := context.WithTimeout(ctx, step)
		err := call(short)
		cancel()
		if p.refused.Load() != nil || !goesOn(err) || !kafkaconn.Sleep(ctx, pause) {
			return p.cause(err)
		}
	}
}

func (p *producer) TransactionsV2() bool { return false }

func (p *producer) Close() {
	if p.closed.Swap(true) {
		return
	}
	if p.p != nil {
		p.p.Close()
		<-p.done
		<-p.logged
	}
}
