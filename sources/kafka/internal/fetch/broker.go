package fetch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-stream/weir/internal/kafkaconn"
	"github.com/weir-stream/weir/operator"
)

const (
	// shortestWait and longestWait bound how long a broker may hold a request back while it has nothing. It follows the time for which there
	// has been nothing: what is known of a silent partition is never much older than its silence is long.
	shortestWait = 500 * time.Millisecond
	longestWait  = 2 * time.Second
	waitShare    = 4
	// overhead is how much longer than that an answer may take.
	overhead = 15 * time.Second
	// smallest is the smallest request, in bytes. A broker answers with one batch at least.
	smallest = 16 << 10
	// quick is how soon an answer arrives after which a smaller request may grow again, to twice its size.
	quick = 2 * time.Second
	// smallestShare is the smallest share of its size that a request shrinks to, as a power of two.
	smallestShare = 10
	// farewell bounds the request that ends a session.
	farewell = 500 * time.Millisecond
)

// broker is one that leads partitions. Its goroutine has one request under way at a time. What is below mu is under the fetcher's.
type broker struct {
	id   int32
	wake chan struct{} // of size 1
	// Of its goroutine.
	session session
	turn    int // rotates the partitions, of which the first ones may take all the room of an answer
	since   time.Time
	fails   int
	strange int // failures in a row that are none of the network
	held    int // answers in a row that a quota left empty
	shrunk  int // how often the size of requests is halved: over a slow line a large answer never arrives in time

	// mu
	partitions []*Partition
	used       int64 // bytes of its answers that are not given back
	waiting    int   // answers that nobody has taken yet
	busy       bool  // a request is under way
	starved    bool  // it waits for memory
}

// lead has a partition read from a broker.
func (f *Fetcher) assign(p *Partition, leader int32) {
	if p.leader == leader {
		return
	}
	if old := f.brokers[p.leader]; old != nil {
		for i, q := range old.partitions {
			if q == p {
				old.partitions = append(old.partitions[:i:i], old.partitions[i+1:]...)
				break
			}
		}
	}
	p.leader = leader
	if leader == noLeader {
		return
	}
	b := f.brokers[leader]
	if b == nil {
		b = &broker{id: leader, wake: make(chan struct{}, 1)}
		f.brokers[leader] = b
		f.done.Go(func() { f.serve(b) })
	}
	b.partitions = append(b.partitions, p)
	poke(b.wake)
}

// serve reads from a broker until Close.
func (f *Fetcher) serve(b *broker) {
	defer f.bid(b)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	b.since = time.Now()
	for {
		parts, room, again := f.choose(b)
		if len(parts) > 0 {
			pause, ok := f.fetch(b, parts, room)
			if !ok {
				return
			}
			if pause > 0 && !kafkaconn.Sleep(f.ctx, pause) {
				return
			}
			continue
		}
		wait := time.Hour
		if !again.IsZero() {
			wait = time.Until(again)
		}
		timer.Reset(wait)
		select {
		case <-f.ctx.Done():
			return
		case <-b.wake:
		case <-timer.C:
		}
	}
}

// choose returns the partitions to ask a broker for, and for how many bytes, or when to look again; zero is when woken.
func (f *Fetcher) choose(b *broker) (parts []*Partition, room int64, again time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b.starved = false
	if b.waiting > 0 || f.ctx.Err() != nil {
		return nil, 0, again
	}
	room, others := f.room(b)
	if b.used > 0 && f.used+f.asked+room*(1+others) > f.cfg.Memory {
		b.starved = true
		return nil, 0, again
	}
	now := time.Now()
	n := len(b.partitions)
	for i := range n {
		p := b.partitions[(b.turn+i)%n]
		switch {
		case p.stopped || p.validate || p.inFlight:
		case now.Before(p.resume):
			if again.IsZero() || p.resume.Before(again) {
				again = p.resume
			}
		default:
			parts = append(parts, p)
		}
	}
	if len(parts) == 0 {
		return nil, 0, again
	}
	b.turn++
	for _, p := range parts {
		p.inFlight = true
	}
	b.busy = true
	f.asked += room
	return parts, room, again
}

// room returns the size of a request, such that each broker may have one and one more is given back meanwhile, and how many other brokers have
// nothing yet and are to find room for it.
func (f *Fetcher) room(b *broker) (room, others int64) {
	brokers := int64(0)
	for _, o := range f.brokers {
		if len(o.partitions) == 0 {
			continue
		}
		brokers++
		if o != b && o.used == 0 && !o.busy {
			others++
		}
	}
	return max(smallest, min(int64(f.cfg.Total), f.cfg.Memory/(brokers+1))>>b.shrunk), others
}

// fetch sends one request and puts its answer into the queue. It returns how long to wait before the next one, and false when nothing more
// can come.
func (f *Fetcher) fetch(b *broker, parts []*Partition, room int64) (pause time.Duration, ok bool) {
	f.mu.Lock() // leaders may be learnt meanwhile
	req := b.session.request(parts, int32(room), min(f.cfg.Partition, int32(room)))
	f.mu.Unlock()
	wait := min(max(time.Since(b.since)/waitShare, shortestWait), longestWait)
	req.MaxWaitMillis = int32(wait.Milliseconds())
	asOf, sent := f.cfg.Now(), time.Now()
	ctx, cancel := context.WithTimeout(f.ctx, wait+overhead)
	defer cancel()
	kresp, err := f.cfg.Client.Broker(int(b.id)).Request(ctx, req)
	resp, _ := kresp.(*kmsg.FetchResponse)
	if err == nil && resp == nil {
		err = fmt.Errorf("%T in answer to a fetch request", kresp)
	}
	if err == nil {
		err = f.sessionError(b, resp)
	}
	if f.ctx.Err() != nil {
		return 0, false
	}
	if err != nil {
		return f.failed(b, parts, room, err)
	}
	b.fails, b.strange = 0, 0
	if resp.ThrottleMillis > 0 && len(resp.Topics) == 0 {
		return f.throttled(b, parts, room, resp), true
	}
	b.held = 0
	all := f.read(b, resp)
	b.session.answered(resp.Version, resp.SessionID)
	a := &Answer{from: b}
	f.mu.Lock()
	defer f.mu.Unlock()
	a.Parts = f.parts(b, all, asOf)
	for i := range a.Parts {
		for j := range a.Parts[i].Batches {
			a.bytes += int64(len(a.Parts[i].Batches[j].records))
		}
	}
	if a.bytes > 0 {
		b.since = sent
		if time.Since(sent) < quick {
			b.shrunk = max(0, b.shrunk-1)
		}
	}
	f.settle(b, parts, room)
	f.used += a.bytes
	b.used += a.bytes
	b.waiting++
	for _, p := range parts {
		p.heard = sent
	}
	f.put(a)
	return 0, true
}

// throttled handles the answer of a broker that holds us back for a quota, and returns for how long. Such an answer leaves out everything,
// whatever there is: it tells nothing of a partition. Nor does it tell whether there is room for a session, which is made by an answer only.
func (f *Fetcher) throttled(b *broker, parts []*Partition, room int64, resp *kmsg.FetchResponse) time.Duration {
	if b.session.epoch > 0 {
		b.session.answered(resp.Version, resp.SessionID)
	}
	pause := time.Duration(resp.ThrottleMillis) * time.Millisecond
	if b.held++; b.held == patience {
		f.cfg.Logger.Warn("a broker sends nothing because of a quota; a batch larger than what the quota allows in its window never comes",
			"broker", b.id, "answers", b.held, "throttle", pause)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(b, parts, room)
	return pause
}

// settle ends what a request has.
func (f *Fetcher) settle(b *broker, parts []*Partition, room int64) {
	f.asked -= room
	b.busy = false
	for _, p := range parts {
		p.inFlight = false
		if p.leader != b.id {
			f.wakeLeader(p)
		}
	}
}

// sessionError returns the error of an answer as a whole. Those about the session are mended by a request for everything.
func (f *Fetcher) sessionError(b *broker, resp *kmsg.FetchResponse) error {
	err := kerr.ErrorForCode(resp.ErrorCode)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.FetchSessionIDNotFound) && b.session.epoch == 0:
		b.session.epoch = noSession // the broker has no room for one
	}
	return err
}

// failed handles a request without an answer.
func (f *Fetcher) failed(b *broker, parts []*Partition, room int64, err error) (pause time.Duration, ok bool) {
	b.session.reset()
	b.fails++
	var timed interface{ Timeout() bool }
	if errors.As(err, &timed) && timed.Timeout() {
		b.shrunk = min(b.shrunk+1, smallestShare)
	}
	if b.fails == patience {
		f.cfg.Logger.Warn("a broker's answers to fetch requests do not arrive", "broker", b.id, "error", err)
	}
	session := errors.Is(err, kerr.FetchSessionIDNotFound) || errors.Is(err, kerr.InvalidFetchSessionEpoch) ||
		errors.Is(err, kerr.FetchSessionTopicIDError)
	if told := f.hopeless(b, err, session); told != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.settle(b, parts, room)
		f.put(&Answer{Err: told})
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(b, parts, room)
	if session && b.fails == 1 {
		return 0, true
	}
	poke(f.look)
	return pauseAfter(b.fails), true
}

// hopeless returns an error that waiting does not mend: a refusal, a client that is closed, and what is neither the network's nor the broker's
// trouble of the moment and comes again and again.
func (f *Fetcher) hopeless(b *broker, err error, session bool) error {
	told := kafkaconn.OrRefused(err, kafkaconn.Access{})
	switch {
	case errors.Is(told, operator.ErrRefused), errors.Is(err, kgo.ErrClientClosed):
		return told
	case session, operator.ClassOf(told) == operator.ClassUnavailable, errors.Is(err, context.DeadlineExceeded), !f.known(b):
		b.strange = 0
		return nil
	}
	if b.strange++; b.strange < patience {
		return nil
	}
	return told
}

// known reports whether the cluster told of a broker when it was asked last; it does not of one that is down.
func (f *Fetcher) known(b *broker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.listed[b.id]
}

// bid says farewell to a broker, which would keep the session for minutes otherwise, and has room for so many only.
func (f *Fetcher) bid(b *broker) {
	req := b.session.closing()
	if req == nil || b.fails > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), farewell)
	defer cancel()
	_, _ = f.cfg.Client.Broker(int(b.id)).Request(ctx, req) // it forgets it by itself, later
}
