package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
)

// batch is what one Fetch returns. Emit works through it in order: new splits, records, then what was found out about the ends.
type batch struct {
	added []*split
	runs  []run
	// at is the run and the record in it that come next.
	at, record int
	ends       []end
}

// run is consecutive records of one split.
type run struct {
	split   *split
	records []*kgo.Record
	// moved is the offset from which reading went on after a gap, or -1.
	moved int64
}

// end tells what was known of a split's end.
type end struct {
	split *split
	// offset is the high watermark.
	offset int64
	// asOf is when it was asked for.
	asOf time.Time
	// reached tells that everything before offset is in this batch or earlier ones.
	reached bool
}

func (b *batch) empty() bool { return b.Unchanging() && len(b.ends) == 0 }

// Unchanging implements operator.Unchanging.
func (b *batch) Unchanging() bool { return len(b.added) == 0 && len(b.runs) == 0 }

// Fetch implements sources.Reader.
func (r *reader[T]) Fetch(ctx context.Context) (any, error) {
	if r.first {
		r.first = false
		return &batch{added: r.initial()}, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.hold:
	}
	for {
		b := &batch{}
		news, err := r.watch.take()
		if err != nil {
			return nil, err
		}
		if len(news.added) > 0 {
			b.added = news.added
			for _, s := range news.added {
				s.fetched = s.next
				r.assigned[s.topicPartition] = s
			}
			r.assign(news.added)
		}
		if news.ends == nil {
			if err := r.poll(ctx, b); err != nil {
				return nil, err
			}
		}
		for tp, offset := range news.ends {
			if s := r.assigned[tp]; s != nil {
				b.ends = append(b.ends, end{s, offset, news.asOf, s.fetched >= offset})
			}
		}
		if !b.empty() {
			return b, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// initial returns the splits of the start.
func (r *reader[T]) initial() []*split {
	out := make([]*split, 0, len(r.assigned))
	for _, s := range r.assigned {
		out = append(out, s)
	}
	return out
}

// poll waits for records, until ctx ends or the watcher has news.
func (r *reader[T]) poll(ctx context.Context, b *batch) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer r.watch.interrupt(cancel)()
	fetches := r.cl.PollFetches(ctx)
	if fetches.IsClientClosed() {
		return fmt.Errorf("read: %w", kgo.ErrClientClosed)
	}
	var failure error
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		tp := topicPartition{p.Topic, p.Partition}
		s := r.assigned[tp]
		if s == nil {
			if p.Err != nil && ctx.Err() == nil && failure == nil {
				failure = r.partitionError(ctx, nil, tp, p.Err, b)
			}
			return
		}
		if n := len(p.Records); n > 0 {
			b.runs = append(b.runs, run{s, p.Records, -1})
			s.fetched = p.Records[n-1].Offset + 1
		}
		if p.Err != nil && failure == nil {
			failure = r.partitionError(ctx, s, tp, p.Err, b)
		}
	})
	return failure
}

// partitionError decides about an error of a fetch. nil means that the client goes on by itself or the gap was passed over.
func (r *reader[T]) partitionError(ctx context.Context, s *split, tp topicPartition, err error, b *batch) error {
	if refused := kafkaconn.Refused(err, kafkaconn.Access{Operation: "Read", Topic: tp.topic}); refused != nil {
		return fmt.Errorf("read %s/%d: %w", tp.topic, tp.partition, refused)
	}
	var truncated *kgo.ErrDataLoss
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil
	case errors.Is(err, kerr.OffsetOutOfRange) && s != nil:
		return r.outOfRange(ctx, s, b)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return operator.Fatal(fmt.Errorf("topic %s was deleted while it was read: %w", tp.topic, err))
	case errors.As(err, &truncated):
		return operator.DataLoss(fmt.Errorf("%s/%d: the broker has lost records that were read already: %w", tp.topic, tp.partition, err))
	case kerr.IsRetriable(err):
		r.rc.Logger.Warn("fetching is disturbed", "topic", tp.topic, "partition", tp.partition, "error", err)
		return nil
	}
	return fmt.Errorf("read %s/%d: %w", tp.topic, tp.partition, kafkaconn.OrRefused(err, kafkaconn.Access{}))
}

// outOfRange handles a partition whose wanted offset is gone; the client has stopped fetching it.
func (r *reader[T]) outOfRange(ctx context.Context, s *split, b *batch) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.settings.deadline)
	defer cancel()
	parts := []topicPartition{s.topicPartition}
	starts, err := mustList(ctx, r.cl, parts, atStart)
	if err != nil {
		return err
	}
	first := starts[s.topicPartition]
	if first <= s.fetched {
		return operator.DataLoss(fmt.Errorf("%s/%d: offset %d is out of range and the partition starts at %d; the broker has lost records or the topic was replaced",
			s.topic, s.partition, s.fetched, first))
	}
	next, err := r.overGap(s.topicPartition, s.fetched, first)
	if err != nil {
		return err
	}
	s.fetched = next
	b.runs = append(b.runs, run{split: s, moved: next})
	r.cl.RemoveConsumePartitions(map[string][]int32{s.topic: {s.partition}})
	r.assign([]*split{s})
	return nil
}
