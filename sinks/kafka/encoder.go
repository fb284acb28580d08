package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
)

// ErrTooLarge tells that a record exceeds what its topic takes.
var ErrTooLarge = errors.New("record is too large for its topic")

// encoder turns values into records and hands them to a client. It belongs to the task's goroutine.
type encoder[T any] struct {
	encode   func(T) (Record, error)
	settings settings
	cluster  *cluster
	stats    *operator.Stats
	timeout  time.Duration // of transactions

	// What follows spares the look-up for the usual case of one topic: what it takes, and what the sink's own limit leaves of that.
	lastTopic  string
	topicLimit int
	lastLimit  int

	// record has key, value and headers of the one at hand, to be passed on by its address. What it refers to stays until the next one.
	record Record

	journal sinks.Journal // nil when nothing is kept
	kept    []byte        // the last record kept
}

// connect meets the cluster and the topics that are known beforehand.
func (e *encoder[T]) connect(ctx context.Context, sc sinks.Context) error {
	settings, err := e.settings.client()
	if err != nil {
		return err
	}
	e.settings = settings
	c, err := newCluster(e.settings, sc.Logger)
	if err != nil {
		return err
	}
	e.cluster, e.stats = c, sc.Stats
	if err := c.reach(ctx); err != nil {
		return err
	}
	if sc.SettleOnly {
		return nil // the topics may be gone, and nothing will be written to them
	}
	topics := []string{e.settings.topic}
	if e.settings.deadLetters != "" {
		topics = append(topics, e.settings.deadLetters)
	}
	return c.learn(ctx, topics...)
}

func (e *encoder[T]) newTracker(id string) *tracker {
	t := newTracker(id)
	if e.stats != nil {
		target := "Kafka at " + strings.Join(e.settings.brokers, ",")
		t.waits = func(what string) func() { return e.stats.Waits.Begin(target + " " + what) }
	}
	return t
}

// write encodes a value and sends it through l. Whether a record fits is decided here and only here, on its encoded size, before the
// client gets it: a client would repeat it for ever or fail its neighbours with it.
func (e *encoder[T]) write(ctx context.Context, l *lane, v T, timestamp int64) error {
	encoded, err := e.encode(v)
	if err != nil {
		return fmt.Errorf("encode a record: %w", err)
	}
	topic := encoded.Topic
	if topic == "" {
		topic = e.settings.topic
	}
	if topic != e.lastTopic {
		if err := e.turnTo(ctx, topic); err != nil {
			return err
		}
	}
	at := encoded.Timestamp
	if at.IsZero() && timestamp == operator.NoTimestamp {
		at = time.Now()
	}
	if !at.IsZero() {
		timestamp = at.UnixMilli()
	}
	// Field by field: a copy of the whole would wait for the stores of encode.
	r := &e.record
	r.Key, r.Value, r.Headers = encoded.Key, encoded.Value, encoded.Headers
	if !surelyFits(r, e.lastLimit) {
		if size := encodedSize(r); size > e.lastLimit {
			return e.tooLarge(ctx, l, topic, size, r, timestamp)
		}
	}
	if err := e.send(ctx, l, topic, encoded.Partition.Chosen(), r, timestamp); err != nil {
		return e.explain(ctx, err)
	}
	return nil
}

// send hands a record to the client, and to the journal where output is kept, with all that a second time must not decide anew.
func (e *encoder[T]) send(ctx context.Context, l *lane, topic string, partition int32, r *Record, millis int64) error {
	if e.journal != nil {
		e.kept = appendKept(e.kept[:0], topic, partition, r, millis)
		if err := e.journal.Append(e.kept); err != nil {
			return err
		}
	}
	return l.send(ctx, e.settings.deadline, topic, partition, r, millis)
}

// explainLimit bounds the search for a reason.
const explainLimit = 5 * time.Second

// explain looks for a refusal behind a client's failure: where a broker refuses its login or certificate, a client tries again in silence
// until the deadline passes.
func (e *encoder[T]) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, operator.ErrRefused) || ctx.Err() != nil {
		return err
	}
	if _, found := kafkaconn.FindTopics(ctx, e.cluster.cl, explainLimit, kafkaconn.Write, e.settings.topic); errors.Is(found, operator.ErrRefused) {
		return fmt.Errorf("%w (%w)", found, err)
	}
	return err
}

func (e *encoder[T]) turnTo(ctx context.Context, topic string) error {
	info, err := e.cluster.topic(ctx, topic)
	if err != nil {
		return err
	}
	e.lastTopic, e.topicLimit, e.lastLimit = topic, info.maxBytes, info.maxBytes
	if e.settings.maxRecord > 0 {
		e.lastLimit = min(e.lastLimit, e.settings.maxRecord)
	}
	return nil
}

// Names of the headers of a dead letter.
const (
	headerTopic = "weir-topic"
	headerSize  = "weir-size"
	headerError = "weir-error"
)

// deadLetterBytes is how much of key and value a dead letter keeps.
const deadLetterBytes = 1024

func (e *encoder[T]) tooLarge(ctx context.Context, l *lane, topic string, size int, r *Record, millis int64) error {
	if e.settings.deadLetters == "" {
		return operator.Fatal(fmt.Errorf("%w: topic %s takes %d bytes and the record with key %q has %d; raise the topic's max.message.bytes or send such records to a dead-letter topic",
			ErrTooLarge, topic, e.lastLimit, head(r.Key), size))
	}
	letter := Record{
		Key: head(r.Key), Value: head(r.Value),
		Headers: []Header{
			{Key: headerTopic, Value: []byte(topic)},
			{Key: headerSize, Value: strconv.AppendInt(nil, int64(size), 10)},
			{Key: headerError, Value: []byte(ErrTooLarge.Error())},
		},
	}
	if err := e.send(ctx, l, e.settings.deadLetters, AnyPartition, &letter, millis); err != nil {
		return err
	}
	e.stats.DeadLetters.Add(1)
	return nil
}

func head(b []byte) []byte { return b[:min(len(b), deadLetterBytes)] }

func (e *encoder[T]) close() {
	if e.cluster != nil {
		e.cluster.close()
	}
}
