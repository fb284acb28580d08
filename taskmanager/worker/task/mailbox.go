package task

import (
	"context"
	"sync"
)

// mailbox holds what the task's goroutine is to do between batches. It is unbounded, since nobody who puts something in may wait
// for a task that itself waits for others.
type mailbox struct {
	wake chan struct{}

	mu     sync.Mutex
	fns    []func(context.Context) error
	spare  []func(context.Context) error
	closed bool
}

func newMailbox() mailbox { return mailbox{wake: make(chan struct{}, 1)} }

// post adds fn, from any goroutine. After close it does nothing.
func (m *mailbox) post(fn func(context.Context) error) {
	m.mu.Lock()
	if !m.closed {
		m.fns = append(m.fns, fn)
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// drain runs what is there, in order, until an error.
func (m *mailbox) drain(ctx context.Context) error {
	m.mu.Lock()
	if len(m.fns) == 0 {
		m.mu.Unlock()
		return nil
	}
	fns := m.fns
	m.fns = m.spare[:0]
	m.mu.Unlock()
	var err error
	for _, fn := range fns {
		if err = fn(ctx); err != nil {
			break
		}
	}
	clear(fns)
	m.spare = fns
	return err
}

func (m *mailbox) close() {
	m.mu.Lock()
	m.closed, m.fns = true, nil
	m.mu.Unlock()
}
