package kafkasource

import (
	"fmt"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
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
	for ; b.at < len(b.runs); b.at, b.batch = b.at+1, 0 {
		run := &b.runs[b.at]
		for ; b.batch < len(run.batches); b.batch++ {
			done, err := r.emitBatch(run.split, &run.batches[b.batch], out, &limit)
			if !done || err != nil {
				return true, err
			}
			run.batches[b.batch] = fetch.Batch{} // what it holds is not kept any longer than its records
		}
		run.split.next, run.split.epoch = run.next, run.epoch
	}
	r.reached(b.ends, out)
	if b.answer != nil {
		r.fetcher.Release(b.answer)
	}
	return false, nil
}

// emitBatch passes on the records of a batch, and reports whether that was all of them.
func (r *reader[T]) emitBatch(s *split, b *fetch.Batch, out sources.Output[T], limit *int) (done bool, err error) {
	var of fetch.Record
	rec := Record{Topic: s.topic, Partition: s.partition}
	millis := int64(-1) // of rec's timestamp
	for *limit > 0 {
		if !b.Next(&of) {
			if err := b.Err(); err != nil {
				return false, operator.Fatal(fmt.Errorf("read %s/%d: %w", s.topic, s.partition, err))
			}
			s.next, s.epoch = b.Last+1, b.Epoch
			return true, nil
		}
		if of.Offset < s.next {
			continue // the batch begins before the position
		}
		*limit--
		rec.Offset, rec.Key, rec.Value, rec.Headers = of.Offset, of.Key, of.Value, of.Headers
		timestamp := of.Millis
		if timestamp != millis { // else it is that of the record before
			millis, rec.Timestamp = timestamp, time.UnixMilli(timestamp)
		}
		if timestamp < 0 {
			timestamp, rec.Timestamp = operator.NoTimestamp, time.Time{}
		}
		v, err := r.decode(rec)
		if err != nil {
			err = r.malformed(&rec, err)
		} else if err = out.Collect(s.number, v, timestamp); err != nil {
			// The coordinates are those of the record at hand; an asynchronous failure may be about an earlier one.
			err = fmt.Errorf("while handling record %s/%d at offset %d: %w", s.topic, s.partition, of.Offset, err)
		}
		if err != nil {
			return false, err
		}
		s.next, s.epoch = of.Offset+1, b.Epoch
	}
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

// malformed follows the chosen policy for a record that decode refuses.
func (r *reader[T]) malformed(rec *Record, cause error) error {
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
