package exchange

import (
	"sync"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// Bounds of a local channel in records. The lower one is small, since handing a batch over takes no time worth hiding.
const (
	localLowest  = 64
	localHighest = 1 << 16
)

// Local is the producing end of a channel inside one worker.
type Local struct {
	inbox   *Inbox
	channel int
	freed   chan struct{}
	closed  chan struct{}
	once    sync.Once
	blocked

	mu     sync.Mutex
	window window
}

var _ Sender = (*Local)(nil)

// NewLocal returns a sender to a channel of a consumer's inbox.
func NewLocal(inbox *Inbox, channel int) *Local {
	return &Local{
		inbox: inbox, channel: channel,
		freed: make(chan struct{}, 1), closed: make(chan struct{}),
		window: newWindow(localLowest, localHighest),
	}
}

// Send hands a batch over.
func (l *Local) Send(b operator.Batch) error {
	size := b.Len()
	for {
		l.mu.Lock()
		if l.window.fits(size) {
			l.window.send(size, time.Now())
			l.mu.Unlock()
			l.end()
			break
		}
		l.mu.Unlock()
		l.begin()
		select {
		case <-l.freed:
		case <-l.closed:
			return ErrClosed
		}
	}
	l.inbox.push(l.channel, Element{Kind: Data, Batch: b, Records: size, size: size, credit: l})
	return nil
}

// BatchRecords implements operator.Channel.
func (l *Local) BatchRecords() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.window.batch()
}

func (l *Local) consumed(size int) {
	l.mu.Lock()
	l.window.done(size, time.Now())
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// Barrier implements Sender.
func (l *Local) Barrier(b barrier.Barrier) error {
	l.inbox.push(l.channel, Element{Kind: Barrier, Barrier: b})
	return nil
}

// Watermark implements Sender.
func (l *Local) Watermark(wm int64) error {
	l.inbox.push(l.channel, Element{Kind: Watermark, Watermark: wm})
	return nil
}

// Idle implements Sender.
func (l *Local) Idle(idle bool) error {
	k := Active
	if idle {
		k = Idle
	}
	l.inbox.push(l.channel, Element{Kind: k})
	return nil
}

// End implements Sender.
func (l *Local) End() error {
	l.inbox.push(l.channel, Element{Kind: End})
	return nil
}

// Close implements Sender.
func (l *Local) Close(bool) { l.once.Do(func() { close(l.closed) }) }
