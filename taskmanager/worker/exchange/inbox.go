package exchange

import "sync"

// Inbox holds what has come on a task's input channels.
type Inbox struct {
	wake chan struct{}

	mu      sync.Mutex
	queues  []queue
	blocked []bool
	// next is the channel to look at first, so that no busy channel starves the others.
	next   int
	closed bool
}

// NewInbox returns an inbox for channels numbered from 0.
func NewInbox(channels int) *Inbox {
	return &Inbox{wake: make(chan struct{}, 1), queues: make([]queue, channels), blocked: make([]bool, channels)}
}

// Channels returns the number of channels.
func (in *Inbox) Channels() int { return len(in.queues) }

// Wake receives a value after something was added to an inbox in which Poll had found nothing.
func (in *Inbox) Wake() <-chan struct{} { return in.wake }

// Poll returns the next element of some channel that is not blocked, round robin. It never waits.
func (in *Inbox) Poll() (channel int, e Element, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := len(in.queues)
	for i := range n {
		ch := in.next + i
		if ch >= n {
			ch -= n
		}
		if in.blocked[ch] || in.queues[ch].len() == 0 {
			continue
		}
		in.next = ch + 1
		if in.next == n {
			in.next = 0
		}
		return ch, in.queues[ch].pop(), true
	}
	return 0, Element{}, false
}

// Block makes Poll pass over a channel.
func (in *Inbox) Block(channel int) {
	in.mu.Lock()
	in.blocked[channel] = true
	in.mu.Unlock()
}

// UnblockAll makes Poll look at every channel.
func (in *Inbox) UnblockAll() {
	in.mu.Lock()
	clear(in.blocked)
	in.mu.Unlock()
}

// Queued returns the number of elements that wait to be polled.
func (in *Inbox) Queued() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for i := range in.queues {
		n += in.queues[i].len()
	}
	return n
}

// Close discards what is there and what still comes, so that no producer waits for a consumer that has ended.
func (in *Inbox) Close() {
	in.mu.Lock()
	in.closed = true
	var left []Element
	for ch := range in.queues {
		for in.queues[ch].len() > 0 {
			left = append(left, in.queues[ch].pop())
		}
	}
	in.mu.Unlock()
	for i := range left {
		left[i].discard()
	}
}

func (in *Inbox) push(channel int, e Element) {
	in.mu.Lock()
	if in.closed {
		in.mu.Unlock()
		e.discard()
		return
	}
	q := &in.queues[channel]
	if last := q.last(); e.Kind == Watermark && last != nil && last.Kind == Watermark {
		// Only the later one matters, and a channel that is blocked for long must not gather them.
		last.Watermark = e.Watermark
	} else {
		q.push(e)
	}
	in.mu.Unlock()
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// queue is a ring of elements that keeps its memory.
type queue struct {
	ring  []Element
	head  int
	count int
}

func (q *queue) len() int { return q.count }

// last returns the element pushed last, nil when there is none.
func (q *queue) last() *Element {
	if q.count == 0 {
		return nil
	}
	return &q.ring[(q.head+q.count-1)%len(q.ring)]
}

func (q *queue) push(e Element) {
	if q.count == len(q.ring) {
		grown := make([]Element, max(8, 2*len(q.ring)))
		for i := range q.count {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.count)%len(q.ring)] = e
	q.count++
}

func (q *queue) pop() Element {
	e := q.ring[q.head]
	q.ring[q.head] = Element{}
	q.head = (q.head + 1) % len(q.ring)
	q.count--
	return e
}
