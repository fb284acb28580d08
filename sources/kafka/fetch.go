package kafkasource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

const (
	// openBytes bounds how much is decompressed ahead of what is emitted, but for a larger batch.
	openBytes = 1 << 20
	// tellEvery is the least time from one word about the ends of partitions that are read to the next.
	tellEvery = 200 * time.Millisecond
)

// batch is what one Fetch returns. Emit works through it in order: new splits, records, then what was found out about the ends.
type batch struct {
	added []*split
	runs  []run
	// at is the run and batch the batch in it that come next.
	at, batch int
	ends      []end
	// answer is given back when all is emitted; nil when more of it is to come.
	answer *fetch.Answer
}

// run is consecutive batches of one split.
type run struct {
	split   *split
	batches []fetch.Batch
	// next is the offset after them, past what is not for a reader, and epoch that of the leader that wrote what is before it.
	next  int64
	epoch int32
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
		for _, s := range news.added {
			r.assign(s)
		}
		b.added = news.added
		for tp, offset := range news.ends {
			if s := r.assigned[tp]; s != nil {
				b.ends = append(b.ends, end{s, offset, news.asOf, s.fetched >= offset})
			}
		}
		if b.empty() {
			if err := r.take(ctx, b); err != nil {
				return nil, err
			}
		}
		if !b.empty() {
			return b, nil
		}
		if b.answer != nil {
			r.fetcher.Release(b.answer)
			continue
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.watch.arrived:
		case <-r.fetcher.Ready():
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

// assign begins to fetch a split where it is.
func (r *reader[T]) assign(s *split) {
	s.fetched = s.next
	s.from = r.fetcher.Add(s.topic, s.id.topic, s.partition, s.fetched, s.epoch)
	r.assigned[s.topicPartition] = s
	r.fetching[s.from] = s
}

// take adds what was fetched, if there is something.
func (r *reader[T]) take(ctx context.Context, b *batch) error {
	if r.answer == nil {
		if r.answer = r.fetcher.Take(); r.answer == nil {
			return nil
		}
		if err := r.answer.Err; err != nil {
			return fmt.Errorf("read: %w", err)
		}
		r.rest = r.answer.Parts
	}
	opened := 0
	limit := int(min(r.settings.memory/4, openBytes))
	for ; len(r.rest) > 0 && opened < limit; r.rest = r.rest[1:] {
		part := &r.rest[0]
		s := r.fetching[part.Partition]
		n := 0
		for n < len(part.Batches) && opened < limit {
			size, err := part.Batches[n].Open(r.fetcher.Decompressor())
			if err != nil {
				return operator.Fatal(fmt.Errorf("read %s/%d: %w", s.topic, s.partition, err))
			}
			opened += size
			n++
		}
		next, epoch := part.Next, part.Epoch
		if n < len(part.Batches) {
			next, epoch = part.Batches[n-1].Last+1, part.Batches[n-1].Epoch
		}
		if n > 0 || next > s.fetched {
			b.runs = append(b.runs, run{s, part.Batches[:n:n], next, epoch})
			s.fetched = next
		}
		if part.Batches = part.Batches[n:]; len(part.Batches) > 0 {
			return nil
		}
		if part.High >= 0 {
			s.end, s.asOf = part.High, part.AsOf
			r.heard[s] = struct{}{}
		}
		if part.Err != nil {
			if err := r.partitionError(ctx, s, part.Err, b); err != nil {
				return err
			}
		}
	}
	if len(r.rest) == 0 {
		b.answer, r.answer = r.answer, nil
		r.tell(b)
	}
	return nil
}

// tell adds what was heard of the ends, not more often than somebody looks at it.
func (r *reader[T]) tell(b *batch) {
	now := time.Now()
	if len(b.runs) > 0 && now.Sub(r.told) < tellEvery {
		return
	}
	r.told = now
	for s := range r.heard {
		b.ends = append(b.ends, end{s, s.end, s.asOf, s.fetched >= s.end})
	}
	clear(r.heard)
}

// partitionError decides about an error of a fetch. nil means that the gap was passed over.
func (r *reader[T]) partitionError(ctx context.Context, s *split, err error, b *batch) error {
	if refused := kafkaconn.Refused(err, kafkaconn.Access{Operation: "Read", Topic: s.topic}); refused != nil {
		return fmt.Errorf("read %s/%d: %w", s.topic, s.partition, refused)
	}
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return r.outOfRange(ctx, s, b)
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		return operator.Fatal(fmt.Errorf("topic %s was deleted while it was read: %w", s.topic, err))
	case errors.Is(err, fetch.ErrTruncated):
		return operator.DataLoss(fmt.Errorf("%s/%d: the broker has lost records that were read already: %w", s.topic, s.partition, err))
	case errors.Is(err, fetch.ErrFormat), errors.Is(err, fetch.ErrMalformed):
		return operator.Fatal(fmt.Errorf("read %s/%d: %w", s.topic, s.partition, err))
	}
	return fmt.Errorf("read %s/%d: %w", s.topic, s.partition, kafkaconn.OrRefused(err, kafkaconn.Access{}))
}

// outOfRange handles a partition whose wanted offset is gone.
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
	b.runs = append(b.runs, run{split: s, next: next, epoch: noEpoch})
	r.fetcher.Move(s.from, next)
	return nil
}
