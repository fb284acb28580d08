package kafkasource

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// Emit implements sources.Reader.
func (r *reader[T]) Emit(fetched any, out sources.Output[T], limit int) (bool, error) {
	b, ok := fetched.(*batch)
	if !ok {
		return false, nil
	}
	for _, s := range b.added {
		r.add(s, out)
	}
	b.added = nil
	for b.at < len(b.runs) {
		current := &b.runs[b.at]
		if current.moved >= 0 {
			current.split.next = current.moved
		}
		for b.record < len(current.records) {
			if limit == 0 {
				return true, nil
			}
			limit--
			rec := current.records[b.record]
			b.record++
			if err := r.emit(current.split, rec, out); err != nil {
				return false, err
			}
			current.split.next = rec.Offset + 1
			rec.Recycle() // from here on rec is another record
		}
		b.at, b.record = b.at+1, 0
	}
	r.reached(b.ends, out)
	return false, nil
}

// add makes a split known to the output and, when it was discovered, part of the positions.
func (r *reader[T]) add(s *split, out sources.Output[T]) {
	s.number, s.known = out.Split(s.id.key()), true
	for _, have := range r.splits {
		if have == s {
			return
		}
	}
	r.splits = append(r.splits, s)
}

// emit passes on one record.
func (r *reader[T]) emit(s *split, rec *kgo.Record, out sources.Output[T]) error {
	if rec.Attrs.IsControl() {
		return nil
	}
	record := Record{
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset,
		Key: rec.Key, Value: rec.Value, Headers: rec.Headers, Timestamp: rec.Timestamp,
	}
	timestamp := rec.Timestamp.UnixMilli()
	if timestamp < 0 {
		timestamp, record.Timestamp = operator.NoTimestamp, time.Time{}
	}
	v, err := r.decode(record)
	if err != nil {
		return r.malformed(rec, err)
	}
	if err := out.Collect(s.number, v, timestamp); err != nil {
		// The coordinates are those of the record at hand; an asynchronous failure may be about an earlier one.
		return fmt.Errorf("while handling record %s/%d at offset %d: %w", rec.Topic, rec.Partition, rec.Offset, err)
	}
	return nil
}

// malformed follows the chosen policy for a record that decode refuses.
func (r *reader[T]) malformed(rec *kgo.Record, cause error) error {
	switch r.settings.policy {
	case decodeSkip:
		r.rc.Logger.Warn("skipped a record that cannot be decoded", "topic", rec.Topic, "partition", rec.Partition, "offset", rec.Offset, "error", cause)
		r.rc.Counters.Skipped(1)
		return nil
	case decodeDeadLetter:
		if err := r.letters.write(rec, cause); err != nil {
			return err
		}
		r.rc.Counters.DeadLetters(1)
		return nil
	case decodeFail:
	}
	return fmt.Errorf("decode record %s/%d at offset %d: %w", rec.Topic, rec.Partition, rec.Offset, cause)
}

// reached reports splits that are caught up, and the lag.
func (r *reader[T]) reached(ends []end, out sources.Output[T]) {
	if len(ends) == 0 {
		return
	}
	for _, e := range ends {
		r.ends[e.split] = e.offset
		if e.reached {
			out.CaughtUp(e.split.number, e.asOf)
		}
	}
	var lag int64
	for _, s := range r.splits {
		offset, ok := r.ends[s]
		if !ok {
			lag = -1
			break
		}
		lag += max(0, offset-s.next)
	}
	r.rc.Counters.Lag(lag)
}
