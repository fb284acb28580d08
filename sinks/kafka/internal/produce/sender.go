package produce

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/sinks/kafka/internal/answers"
)

const (
	firstPause   = 20 * time.Millisecond
	longestPause = time.Second
	// refresh is how often partitions are asked for anew, so that records are spread over those that were added.
	refresh = 5 * time.Minute
	// requestBytes is how much one request carries, or one batch.
	requestBytes = 16 << 20
	// lookAgain is the least time between two questions for partitions.
	lookAgain = 100 * time.Millisecond
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

// parcel is what one request carries.
type parcel struct {
	partitions []*partition
	bytes      int
}

// dispatch sends what is due to each broker that has no request under way, and returns when to look again; zero is when woken.
func (w *Writer) dispatch() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return time.Time{}
	}
	now := time.Now()
	again := w.look(now)
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
		case p.leader < 0 || w.who.id < 0 || p.joining || w.busy[p.leader] || r != nil && r.bytes >= requestBytes:
			kept = append(kept, p)
			continue // whoever ends the wait wakes the sender
		case w.joins() && !p.joined && now.Before(p.resend):
			again = earlier(again, p.resend)
			kept = append(kept, p)
			continue
		case w.joins() && !p.joined:
			p.joining = true
			join = append(join, p)
			kept = append(kept, p)
			continue
		}
		b, at := p.next(now, w.flushes > 0)
		if b == nil {
			again = earlier(again, at)
			kept = append(kept, p)
			continue
		}
		if !b.sealed {
			b.seal(w.who, p.sequence, w.compress())
			p.sequence = after(p.sequence, b.records)
		}
		p.inFlight = true
		if r == nil {
			r = &parcel{}
			requests[p.leader] = r
		}
		r.partitions = append(r.partitions, p)
		r.bytes += len(b.buf)
		served = append(served, p)
	}
	w.active = append(kept, served...)
	for leader, r := range requests {
		w.busy[leader] = true
		w.done.Go(func() { w.request(leader, r.partitions) })
	}
	if len(join) > 0 {
		w.done.Go(func() { w.join(join) })
	}
	return again
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// request sends the flying batches of partitions to their leader and takes the answer.
func (w *Writer) request(leader int32, partitions []*partition) {
	ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Deadline)
	defer cancel()
	req := kmsg.NewPtrProduceRequest()
	if id := w.cfg.TransactionalID; id != "" {
		req.TransactionID = &id
	}
	req.Acks = -1
	req.TimeoutMillis = int32(w.cfg.Deadline.Milliseconds())
	places := map[*topic]int{}
	for _, p := range partitions {
		i, ok := places[p.topic]
		if !ok {
			i = len(req.Topics)
			places[p.topic] = i
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = p.topic.name, p.topic.id
			req.Topics = append(req.Topics, t)
		}
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = p.index, p.flying.buf
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, rp)
	}
	resp, err := w.cfg.Client.Broker(int(leader)).Request(ctx, req)
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.poke()
	delete(w.busy, leader)
	for _, p := range partitions {
		p.inFlight = false
	}
	if w.err != nil {
		return
	}
	produced, _ := resp.(*kmsg.ProduceResponse)
	if err == nil && produced == nil {
		err = fmt.Errorf("%T in answer to a produce request", resp)
	}
	if err != nil {
		for _, p := range partitions {
			w.answer(p, -1, err)
		}
		return
	}
	type place struct {
		topic string
		id    [16]byte
		index int32
	}
	byID := produced.Version >= 13
	given := map[place]*kmsg.ProduceResponseTopicPartition{}
	for i := range produced.Topics {
		t := &produced.Topics[i]
		for j := range t.Partitions {
			if byID {
				given[place{"", t.TopicID, t.Partitions[j].Partition}] = &t.Partitions[j]
			} else {
				given[place{t.Topic, [16]byte{}, t.Partitions[j].Partition}] = &t.Partitions[j]
			}
		}
	}
	for _, p := range partitions {
		at := place{p.topic.name, [16]byte{}, p.index}
		if byID {
			at = place{"", p.topic.id, p.index}
		}
		r := given[at]
		if r == nil {
			w.fail(fmt.Errorf("the broker's answer leaves out %s/%d", p.topic.name, p.index))
			return
		}
		w.answer(p, r.BaseOffset, codeError(r.ErrorCode))
	}
}

// answer takes the answer to a partition's flying batch.
func (w *Writer) answer(p *partition, offset int64, err error) {
	b := p.flying
	if b == nil {
		return // failed meanwhile
	}
	switch answers.React(answers.Produce, err) {
	case answers.Done:
		p.flying, p.pause, w.trouble = nil, 0, nil
		w.outcome(p, b, offset, nil)
	case answers.Again:
		p.later()
		w.again(fmt.Errorf("write to %s/%d: %w", p.topic.name, p.index, err))
	default:
		w.fail(fmt.Errorf("write to %s/%d: %w", p.topic.name, p.index, err))
	}
}

// look asks for producer id and partitions where they are wanted, and returns when to look again.
func (w *Writer) look(now time.Time) time.Time {
	var names []string
	wanted := w.stale
	for name, t := range w.topics {
		names = append(names, name)
		wanted = wanted || t.asked
	}
	switch {
	case len(names) == 0:
		return time.Time{}
	case !wanted && now.Before(w.looked.Add(refresh)):
		return w.looked.Add(refresh)
	case w.busy[asking]:
		return time.Time{}
	case now.Before(w.looked.Add(lookAgain)):
		return w.looked.Add(lookAgain)
	}
	w.busy[asking] = true
	w.looked, w.stale = now, false
	id := w.who.id < 0 && !w.who.transactional
	w.done.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, w.cfg.Deadline)
		defer cancel()
		var who identity
		var err error
		if id {
			who, err = w.initialise(ctx)
		}
		var found *kmsg.MetadataResponse
		if err == nil {
			found, err = metadata(ctx, w.cfg.Client, names)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		defer w.poke()
		delete(w.busy, asking)
		switch {
		case w.err != nil:
		case err != nil:
			w.unanswered(err)
		default:
			if id {
				w.who = who
			}
			w.learn(found)
		}
	})
	return time.Time{}
}

// asking is the place among the busy brokers of questions for partitions.
const asking int32 = -1

// unanswered decides whether to ask again.
func (w *Writer) unanswered(err error) {
	if answers.React(answers.Produce, err) != answers.Again {
		w.fail(err)
		return
	}
	w.again(err)
}

// again notes an answer after which things may be better: where the leaders are by then is asked first.
func (w *Writer) again(trouble error) { w.trouble, w.stale = trouble, true }

func metadata(ctx context.Context, client *kgo.Client, topics []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req.RequestWith(ctx, client)
}

// learn takes over topics, partitions and leaders, and the records that waited for them.
func (w *Writer) learn(m *kmsg.MetadataResponse) {
	for i := range m.Topics {
		found := &m.Topics[i]
		if found.Topic == nil {
			continue
		}
		t := w.topics[*found.Topic]
		if t == nil {
			continue
		}
		if err := codeError(found.ErrorCode); err != nil {
			w.unanswered(fmt.Errorf("topic %s: %w", t.name, err))
			if w.err != nil {
				return
			}
			continue
		}
		if t.partitions != nil && t.id != found.TopicID {
			w.fail(fmt.Errorf("topic %s was deleted and created again", t.name))
			return
		}
		t.id = found.TopicID
		for j := range found.Partitions {
			for p := &found.Partitions[j]; int(p.Partition) >= len(t.partitions); {
				t.partitions = append(t.partitions, &partition{topic: t, index: int32(len(t.partitions)), leader: -1})
			}
		}
		for j := range found.Partitions {
			p := &found.Partitions[j]
			t.partitions[p.Partition].leader = p.Leader
			if p.Leader < 0 {
				w.stale = true
			}
		}
		t.asked = false
		waiting := t.waiting
		t.waiting = nil
		for k, r := range waiting {
			if err := w.add(t, r.partition, r.key, r.value, r.headers, r.millis); err != nil {
				t.waiting = waiting[k:]
				w.fail(err)
				return
			}
		}
	}
}
