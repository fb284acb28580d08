package kafkasink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// recordOverhead stands for what a client keeps per record beyond key and value.
const recordOverhead = 128

// windowBytes bounds what one client holds unacknowledged. Records wait in our own window, with a deadline, and never inside the
// client.
const windowBytes = 32 << 20

// tracker follows the records of one client: how much is outstanding, the first failure, and per partition what was accepted.
//
// What was sent belongs to the goroutine that writes. spans belongs to the client's goroutine that reports; it may be read once nothing
// is outstanding, which orders the accesses.
type tracker struct {
	id      string       // transactional id, for what a refusal says
	settled atomic.Int64 // bytes with an outcome, of all transactions
	failure atomic.Pointer[error]
	waiting atomic.Bool
	waits   func(what string) (end func()) // shows a wait for room; nil for nobody to show it to
	wake    chan struct{}                  // of size 1: a full one already wakes

	handed int64 // bytes handed to the client, of all transactions
	sent   int64 // records of this transaction

	spans     map[string][]span // by topic, index is the partition; Count 0 is no span
	last      []span            // of lastTopic
	lastTopic string
}

func newTracker(id string) *tracker {
	return &tracker{id: id, wake: make(chan struct{}, 1), spans: map[string][]span{}}
}

// begin forgets the last transaction.
func (t *tracker) begin() {
	t.sent = 0
	clear(t.spans)
	t.last, t.lastTopic = nil, ""
}

func (t *tracker) err() error {
	if e := t.failure.Load(); e != nil {
		return *e
	}
	return nil
}

// outstanding returns how many bytes have no outcome yet.
func (t *tracker) outstanding() int64 { return t.handed - t.settled.Load() }

// admit waits for room in the window.
func (t *tracker) admit(ctx context.Context, deadline time.Duration) error {
	if t.failure.Load() != nil {
		return t.err()
	}
	if t.outstanding() < windowBytes {
		return nil
	}
	if t.waits != nil {
		defer t.waits("to accept what is written")()
	}
	return t.wait(ctx, deadline, windowBytes/2)
}

// wait waits until less than limit is outstanding or a record failed.
func (t *tracker) wait(ctx context.Context, deadline time.Duration, limit int64) error {
	timer := time.NewTimer(deadline)
	defer timer.Stop()
	t.waiting.Store(true)
	defer t.waiting.Store(false)
	for t.outstanding() >= limit {
		if err := t.err(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return operator.Unavailable(fmt.Errorf("%w within %s: %d bytes are waiting", errNoProgress, deadline, t.outstanding()))
		case <-t.wake:
		}
	}
	return t.err()
}

var errNoProgress = errors.New("the broker accepted no more records")

// sending notes that a record is handed to the client.
func (t *tracker) sending(bytes int) {
	t.sent++
	t.handed += int64(bytes) + recordOverhead
}

// delivered is ProducerConfig.Delivered.
func (t *tracker) delivered(d Delivery) {
	if d.Err == nil {
		t.accept(d)
	} else if err := answers.Failure(answers.Write, d.Err, kafkaconn.Access{Operation: "Write", Topic: d.Topic, TransactionalID: t.id}); err != nil {
		err = fmt.Errorf("write to %s/%d: %w", d.Topic, d.Partition, err)
		t.failure.CompareAndSwap(nil, &err)
	}
	t.settled.Add(int64(d.Bytes) + d.Records*recordOverhead)
	if t.waiting.Load() {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

func (t *tracker) accept(d Delivery) {
	if t.lastTopic != d.Topic || t.last == nil {
		t.last, t.lastTopic = t.spans[d.Topic], d.Topic
	}
	if int(d.Partition) >= len(t.last) {
		t.last = append(t.last, make([]span, int(d.Partition)+1-len(t.last))...)
		t.spans[d.Topic] = t.last
	}
	s := &t.last[d.Partition]
	if s.Count == 0 {
		*s = span{Partition: d.Partition, First: d.Offset, Last: d.Offset}
	}
	s.Count += d.Records
	s.First, s.Last = min(s.First, d.Offset), max(s.Last, d.Offset+d.Records-1)
}

// accepted returns, after a flush, what was written, and an error unless that is everything that was sent.
func (t *tracker) accepted() ([]preparedTopic, error) {
	if err := t.err(); err != nil {
		return nil, err
	}
	if n := t.outstanding(); n != 0 {
		return nil, fmt.Errorf("%d bytes have no outcome after the flush", n)
	}
	var topics []preparedTopic
	var count int64
	for name, spans := range t.spans {
		topic := preparedTopic{Name: name}
		for _, s := range spans {
			if s.Count > 0 {
				topic.Spans = append(topic.Spans, s)
				count += s.Count
			}
		}
		topics = append(topics, topic)
	}
	slices.SortFunc(topics, func(a, b preparedTopic) int { return strings.Compare(a.Name, b.Name) })
	if count != t.sent {
		return nil, fmt.Errorf("%d records were sent and %d accepted", t.sent, count)
	}
	return topics, nil
}
