package kafkasink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

// keptVersion is the version of the encoding below. Older ones must stay readable.
const keptVersion = 1

// keptRecord is what Send was called with.
type keptRecord struct {
	topic     string
	partition int32 // AnyPartition leaves it to the partitioner
	record    Record
	millis    int64
}

// appendKept encodes a record as it was sent. Lengths of what may be null are one more than they are, 0 being null.
func appendKept(b []byte, topic string, partition int32, r *Record, millis int64) []byte {
	b = append(b, keptVersion)
	b = binary.AppendUvarint(b, uint64(len(topic)))
	b = append(b, topic...)
	b = binary.AppendVarint(b, int64(partition))
	b = binary.AppendVarint(b, millis)
	b = appendNullable(b, r.Key)
	b = appendNullable(b, r.Value)
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for _, h := range r.Headers {
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		b = appendNullable(b, h.Value)
	}
	return b
}

func appendNullable(b, v []byte) []byte {
	if v == nil {
		return append(b, 0)
	}
	return append(binary.AppendUvarint(b, uint64(len(v))+1), v...)
}

// decodeKept decodes a kept record, which the result refers to.
func decodeKept(b []byte) (keptRecord, error) {
	switch {
	case len(b) == 0:
		return keptRecord{}, fmt.Errorf("%w: an empty kept record", errMalformed)
	case b[0] != keptVersion:
		return keptRecord{}, fmt.Errorf("kept record of version %d: this program reads version %d; use the version of Weir that wrote it", b[0], keptVersion)
	}
	d := decoder{b[1:], nil}
	k := keptRecord{topic: string(d.bytes(d.length()))}
	partition := d.varint()
	if partition < int64(AnyPartition) || partition > 1<<31-1 {
		d.fail()
	}
	k.partition = int32(partition)
	k.millis = d.varint()
	k.record.Key, k.record.Value = d.nullable(), d.nullable()
	for n := d.length(); n > 0 && d.err == nil; n-- {
		k.record.Headers = append(k.record.Headers, Header{Key: string(d.bytes(d.length())), Value: d.nullable()})
	}
	if d.err == nil && len(d.rest) > 0 {
		d.fail()
	}
	return k, d.err
}

func (d *decoder) nullable() []byte {
	n := d.uvarint(0, uint64(len(d.rest)))
	if n == 0 {
		return nil
	}
	return d.bytes(int(n) - 1)
}

// Keep implements sinks.Rewriter.
func (s *transactional[T]) Keep(j sinks.Journal) { s.journal = j }

// Rewrite implements sinks.Rewriter.
func (s *transactional[T]) Rewrite(ctx context.Context, t *txn, record []byte) error {
	k, err := decodeKept(record)
	if err != nil {
		return operator.Fatal(err)
	}
	if k.topic != s.lastTopic {
		if err := s.turnTo(ctx, k.topic); err != nil {
			return err
		}
	}
	// The sink's own limit may have been lowered since; what has been promised is written all the same.
	if size := encodedSize(&k.record); size > s.topicLimit {
		return operator.Fatal(fmt.Errorf("%w: topic %s takes %d bytes now and a kept record with key %q has %d; raise the topic's max.message.bytes again",
			ErrTooLarge, k.topic, s.topicLimit, head(k.record.Key), size))
	}
	return s.explain(ctx, t.lane.send(ctx, s.settings.deadline, k.topic, k.partition, &k.record, k.millis))
}

// Revoke implements sinks.Rewriter. Only the control markers prove it: the broker's answer to an abort is the same for one that has been
// aborted and, in some states, for one that has not.
func (s *transactional[T]) Revoke(ctx context.Context, c sinks.Committable) error {
	p, err := decodeCommittable(c)
	if err != nil {
		return operator.Fatal(err)
	}
	return s.cluster.revoke(ctx, p)
}

func (c *cluster) revoke(ctx context.Context, p *prepared) error {
	ctx, cancel := context.WithTimeout(ctx, c.settings.deadline)
	defer cancel()
	if err := c.stillThere(ctx, p); err != nil {
		return err
	}
	answer := c.endTxn(ctx, p, false)
	switch answers.React(answers.Abort, answer) {
	case answers.Refused, answers.FailJob:
		return fmt.Errorf("end transaction %s: %w", p.ID, answers.Failure(answers.Abort, answer, onTransaction("Write", p.ID)))
	}
	proof, err := c.prove(ctx, p)
	switch {
	case err != nil:
	case proof == verdictLost:
		return nil
	case proof == verdictCommitted:
		return fmt.Errorf("transaction %s: %w", p.ID, sinks.ErrPublished)
	case proof == verdictGone:
		return unknown(p, answer)
	}
	return fmt.Errorf("end transaction %s: %w: %w", p.ID, sinks.ErrRetriable, errors.Join(answer, err))
}
