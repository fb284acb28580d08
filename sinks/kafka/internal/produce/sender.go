package produce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	// longestRequest bounds a request below the deadlines of whoever waits for its records, so that a leader that is silent is given up, and
	// asked for, while there is time.
	longestRequest = 10 * time.Second
	// requestBytes is the size from which a request takes no further batch.
	requestBytes = 16 << 20
)

// run sends until Close.
func (w *Writer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		again := w.dispatch()
		if again.IsZero() {
			timer.Reset(time.Hour)
		} else {
			timer.Reset(time.Until(again))
		}
		select {
		case <-w.ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// flight is a batch on its way. What it holds does not change, so that the request needs no lock.
type flight struct {
	partition *partition
	batch     *batch
	topicID   [16]byte
}

// parcel is what one request carries.
type parcel struct {
	flights []flight
	bytes   int
}

// dispatch sends what is due to each broker that has no request under way, and returns when to look again; zero is when woken.
func (w *Writer) dispatch() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return time.Time{}
	}
	now := time.Now()
	var again time.Time
	var join []*partition
	requests := map[int32]*parcel{}
	var served, kept []*partition // those that were served come last the next time
	for _, p := range w.active {
		if p.idle() {
			p.listed = false
			continue
		}
		r := requests[p.leader]
		switch {
		case p.leader < 0:
			w.again(fmt.Errorf("%s/%d has no leader: %w", p.topic.name, p.index, kerr.LeaderNotAvailable))
			kept = append(kept, p)
			continue
		case w.who.id < 0 || p.joining || w.busy[p.leader] || r != nil && r.bytes >= requestBytes:
			kept = append(kept, p)
			continue // whoever ends the wait wakes the sender
		case w.joins() && !p.joined && now.Before(p.resend):
			again = earlier(again, p.resend)
			kept = append(kept, p)
			continue
		case w.joins() && !p.joined:
			if !w.joining {
				p.joining = true
				join = append(join, p)
			}
			kept = append(kept, p)
			continue
		}
		b, at := p.next(now, w.flushes > 0)
		if b == nil {
			again = earlier(again, at)
			kept = append(kept, p)
			continue
		}
		if !b.numbered {
			b.numbered, b.sequence, b.who = true, p.sequence, w.who
			p.sequence = after(p.sequence, b.records)
		}
		p.inFlight = true
		if r == nil {
			r = &parcel{}
			requests[p.leader] = r
		}
		r.flights = append(r.flights, flight{p, b, p.topic.id})
		r.bytes += len(b.buf)
		served = append(served, p)
	}
	w.active = append(kept, served...)
	for leader, r := range requests {
		w.busy[leader] = true
		w.done.Go(func() { w.request(leader, r.flights) })
	}
	if len(join) > 0 {
		w.joining = true
		w.done.Go(func() { w.join(join) })
	}
	return earlier(again, w.look(now))
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// limit is how long one request may take.
func (w *Writer) limit() time.Duration { return min(w.cfg.Deadline/3, longestRequest) }

// request sends batches to the leader of their partitions and takes the answer.
func (w *Writer) request(leader int32, flights []flight) {
	req := kmsg.NewPtrProduceRequest()
	if id := w.cfg.TransactionalID; id != "" {
		req.TransactionID = &id
	}
	req.Acks = -1
	req.TimeoutMillis = int32((w.limit() * 3 / 4).Milliseconds())
	places := map[*topic]int{}
	for _, f := range flights {
		if !f.batch.sealed {
			f.batch.seal(w.compress)
		}
		i, ok := places[f.partition.topic]
		if !ok {
			i = len(req.Topics)
			places[f.partition.topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = f.partition.topic.name, f.topicID
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = f.partition.index, f.batch.buf
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	ctx, cancel := context.WithTimeout(w.ctx, w.limit())
	defer cancel()
	resp, err := w.cfg.Client.Broker(int(leader)).Request(ctx, req)
	given, err := outcomes(resp, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	delete(w.busy, leader)
	for _, f := range flights {
		f.partition.inFlight = false
	}
	for _, f := range flights {
		switch r := given.of(f); {
		case w.err != nil:
			return
		case err != nil:
			w.answer(f, -1, err)
		case r == nil:
			w.fail(fmt.Errorf("the broker's answer leaves out %s/%d", f.partition.topic.name, f.partition.index))
		default:
			w.answer(f, r.BaseOffset, codeError(r.ErrorCode))
		}
	}
}

// given is an answer by topic, its name or its id, and partition.
type given map[place]*kmsg.ProduceResponseTopicPartition

type place struct {
	topic string
	id    [16]byte
	index int32
}

func outcomes(resp kmsg.Response, err error) (given, error) {
	if err != nil {
		return nil, err
	}
	produced, ok := resp.(*kmsg.ProduceResponse)
	if !ok {
		return nil, fmt.Errorf("%T in answer to a produce request", resp)
	}
	all := given{}
	for i := range produced.Topics {
		t := &produced.Topics[i]
		for j := range t.Partitions {
			at := place{topic: t.Topic, index: t.Partitions[j].Partition}
			if produced.Version >= 13 {
				at.topic, at.id = "", t.TopicID
			}
			all[at] = &t.Partitions[j]
		}
	}
	return all, nil
}

func (g given) of(f flight) *kmsg.ProduceResponseTopicPartition {
	if r := g[place{id: f.topicID, index: f.partition.index}]; r != nil {
		return r
	}
	return g[place{topic: f.partition.topic.name, index: f.partition.index}]
}

var errNoOffset = errors.New("the broker accepted records without telling their offset")

// answer takes the answer to a batch.
func (w *Writer) answer(f flight, offset int64, err error) {
	p := f.partition
	switch answers.React(answers.Produce, err) {
	case answers.Done:
		if offset < 0 {
			w.fail(fmt.Errorf("write to %s/%d: %w", p.topic.name, p.index, errNoOffset))
			return
		}
		p.flying, p.pause = nil, 0
		w.trouble = nil
		w.outcome(p, f.batch, offset, nil)
	case answers.Again:
		p.later()
		w.again(fmt.Errorf("write to %s/%d: %w", p.topic.name, p.index, err))
	default:
		w.fail(fmt.Errorf("write to %s/%d: %w", p.topic.name, p.index, err))
	}
}

// compress returns the records of a batch as they are to be sent, and what that is.
func (w *Writer) compress(records []byte) ([]byte, kgo.CompressionCodecType) {
	if w.compressor == nil {
		return records, kgo.CodecNone
	}
	to, _ := w.packed.Get().(*bytes.Buffer)
	if to == nil {
		to = &bytes.Buffer{}
	}
	defer w.packed.Put(to)
	to.Reset()
	packed, codec := w.compressor.Compress(to, records)
	if codec == kgo.CodecError || len(packed) >= len(records) {
		return records, kgo.CodecNone
	}
	return append(records[:0], packed...), codec
}
