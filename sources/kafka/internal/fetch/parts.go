package fetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// errShort is about answers that hold bytes of a partition and never a whole batch, errNoProgress about such with nothing but batches before
// the wanted offset.
var (
	errShort      = fmt.Errorf("%w: the broker sends no whole batch", ErrCorrupt)
	errNoProgress = fmt.Errorf("%w: the broker sends batches before the wanted offset only", ErrCorrupt)
)

// told is what an answer tells of a partition that was asked for.
type told struct {
	*kmsg.FetchResponseTopicPartition
	partition *Partition
	content   content
	err       error // of the content
}

// read finds what an answer tells, and takes it apart.
func (f *Fetcher) read(b *broker, resp *kmsg.FetchResponse) []told {
	all := f.told(b, resp)
	for i := range all {
		t := &all[i]
		t.content, t.err = take(t.FetchResponseTopicPartition, b.session.sent[t.partition].offset, f.decompressor)
	}
	return all
}

func (f *Fetcher) told(b *broker, resp *kmsg.FetchResponse) []told {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []told
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			rp := &t.Partitions[j]
			at := place{topic: t.Topic, index: rp.Partition}
			if at.topic == "" {
				at.id = t.TopicID
			}
			if p := f.places[at]; p != nil {
				if _, asked := b.session.sent[p]; asked {
					all = append(all, told{FetchResponseTopicPartition: rp, partition: p})
				}
			}
		}
	}
	return all
}

// parts takes over what an answer tells. What was asked for and is left out has not changed.
func (f *Fetcher) parts(b *broker, all []told, asOf time.Time) []Part {
	out := make([]Part, 0, len(b.session.sent))
	for i := range all {
		p := all[i].partition
		if _, first := b.session.sent[p]; !first {
			continue
		}
		delete(b.session.sent, p)
		if part, ok := f.part(b, &all[i]); ok {
			part.AsOf = asOf
			out = append(out, part)
		}
	}
	for p := range b.session.sent {
		out = append(out, Part{Partition: p, Next: p.next, Epoch: p.readEpoch, High: p.high, AsOf: asOf})
	}
	return out
}

// part takes over what was told about a partition. It returns false where that is nothing for a reader.
func (f *Fetcher) part(b *broker, t *told) (Part, bool) {
	p := t.partition
	out := Part{Partition: p, High: -1}
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		out.Next, out.Epoch, out.Err = p.next, p.readEpoch, f.partitionError(b, t, err)
		return out, out.Err != nil
	}
	err := t.err
	switch {
	case t.content.next > p.next: // what comes before an error is good, and the next request begins with what is not
		p.fails, p.short, err = 0, 0, nil
	case err == nil && len(t.RecordBatches) == 0:
		p.fails, p.short = 0, 0
	case err == nil:
		err = short(b, t)
	}
	p.next, p.high = t.content.next, t.HighWatermark
	if t.content.epoch >= 0 {
		p.readEpoch = t.content.epoch
	}
	if err != nil {
		if p.later(time.Now()); errors.Is(err, ErrCorrupt) && p.fails < patience {
			err = nil
		}
		p.stopped = err != nil
	}
	out.Batches, out.Next, out.Epoch, out.High, out.Err = t.content.batches, p.next, p.readEpoch, p.high, err
	return out, true
}

// short handles an answer with bytes that bring a partition no further: the last batch of a partition may be cut off where the room of an
// answer ends, but that of the first one is whole, and each partition is the first one sometimes.
func short(b *broker, t *told) error {
	if frame, _, err := cut(t.RecordBatches); err == nil && frame != nil {
		return errNoProgress
	}
	p := t.partition
	if p.short++; p.short <= patience+2*len(b.partitions) {
		return nil
	}
	return errShort
}

// partitionError handles an error that a broker answers about a partition. nil means that it may pass.
func (f *Fetcher) partitionError(b *broker, t *told, err error) error {
	p := t.partition
	p.later(time.Now())
	switch {
	case errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.FencedLeaderEpoch):
		if to := &t.CurrentLeader; to.LeaderEpoch > p.leaderEpoch && f.brokers[to.LeaderID] != nil {
			f.follow(p, to.LeaderID, to.LeaderEpoch)
		}
		err = nil
	case errors.Is(err, kerr.OffsetOutOfRange):
	case errors.Is(err, kerr.UnknownTopicOrPartition): // of a session, which holds what the topic's name meant once: a new one goes by its id
		b.session.reset()
		err = nil
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		b.session.reset()
		if p.fails < patience {
			err = nil
		}
	case errors.Is(err, kerr.CorruptMessage):
		if p.fails < patience {
			err = nil
		}
	case kerr.IsRetriable(err):
		if p.fails == patience {
			f.cfg.Logger.Warn("fetching is disturbed", "topic", p.topic.name, "partition", p.index, "error", err)
		}
		err = nil
	}
	if p.stopped = err != nil; !p.stopped {
		poke(f.look)
	}
	return err
}
