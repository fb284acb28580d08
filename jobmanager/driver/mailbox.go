package driver

import "sync"

// mailbox is the queue of a driver. It is unbounded, because the senders are sessions, which must not wait for a driver that waits for
// the log; what fills it is bounded by what the job's tasks have in flight (figures of tasks do not pass through it).
type mailbox struct {
	mu    sync.Mutex
	queue []any
	ready chan struct{} // holds a token while the queue is not empty
}

func newMailbox() *mailbox { return &mailbox{ready: make(chan struct{}, 1)} }

func (b *mailbox) put(ev any) {
	b.mu.Lock()
	b.queue = append(b.queue, ev)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queue
	b.queue = nil
	return q
}
