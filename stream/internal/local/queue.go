package local

import (
	"sync"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// queue takes a worker's events. It is unbounded, so that no task waits for the coordinator; the tasks bound it by what they do.
type queue struct {
	wake chan struct{}

	mu     sync.Mutex
	events []*workerv1.Event
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) put(e *workerv1.Event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() (events []*workerv1.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	events, q.events = q.events, nil
	return events
}
