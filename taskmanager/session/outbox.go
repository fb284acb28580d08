package session

import (
	"context"
	"sync"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
)

// resendWindow is how long before the end of a connection a report may have been sent without having arrived.
const resendWindow = 10 * time.Second

// outbox is the ordered queue of reports. It grows only by what workers report while there is no leader, which is little, and by what
// one slow connection has not taken yet.
type outbox struct {
	now  func() time.Time
	wake chan struct{} // capacity 1: one pending wake-up is enough, the sender empties the queue

	mu        sync.Mutex
	connected bool
	queue     []*clusterv1.SessionRequest
	recent    []sentReport // in order; those of the last resendWindow
	idle      chan struct{}
	inFlight  bool
	// figures are the last of each worker: one that has nothing new to tell does not repeat them soon.
	figures map[worker]*clusterv1.SessionRequest
	// goodbye is the announced shutdown; nil before. Every leader met afterwards must hear it, or it would place work here.
	goodbye *clusterv1.SessionRequest
}

// worker names one by its attempt.
type worker struct {
	job     string
	attempt uint64
}

type sentReport struct {
	at time.Time
	m  *clusterv1.SessionRequest
}

func newOutbox(now func() time.Time) *outbox {
	return &outbox{now: now, wake: make(chan struct{}, 1), figures: make(map[worker]*clusterv1.SessionRequest)}
}

func (o *outbox) put(m *clusterv1.SessionRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.GetGoodbye() != nil {
		o.goodbye = m
	}
	if e := m.GetWorkerEvent(); e.GetEvent().GetStatistics() != nil {
		o.figures[worker{e.GetJobId(), e.GetAttempt()}] = m
	} else if x := m.GetWorkerExited(); x != nil {
		delete(o.figures, worker{x.GetJobId(), x.GetAttempt()})
	}
	if !o.connected && !kept(m) {
		return
	}
	o.queue = append(o.queue, m)
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// connect begins a connection: what may not have arrived over the former one goes first, and the figures of workers last.
func (o *outbox) connect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	again := make([]*clusterv1.SessionRequest, 0, len(o.recent)+len(o.queue)+1)
	if o.goodbye != nil {
		again = append(again, o.goodbye)
	}
	for _, r := range o.recent {
		again = append(again, r.m)
	}
	o.queue = append(again, o.queue...)
	for _, m := range o.figures {
		o.queue = append(o.queue, m)
	}
	o.recent = nil
	o.connected = true
	o.signal()
}

// disconnect ends a connection and drops what only made sense to its leader.
func (o *outbox) disconnect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.connected, o.inFlight = false, false
	o.trim()
	rest := o.queue[:0]
	for _, m := range o.queue {
		if kept(m) {
			rest = append(rest, m)
		}
	}
	clear(o.queue[len(rest):])
	o.queue = rest
	o.settle()
}

// next takes the oldest report; the one taken before has been written.
func (o *outbox) next() (*clusterv1.SessionRequest, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.inFlight = false
		o.settle()
		return nil, false
	}
	m := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	o.inFlight = true
	if kept(m) {
		// Before it is written: a write that fails may have arrived or not, like one that succeeds.
		o.trim()
		o.recent = append(o.recent, sentReport{o.now(), m})
	}
	return m, true
}

// trim forgets reports sent so long ago that they have arrived.
func (o *outbox) trim() {
	limit := o.now().Add(-resendWindow)
	i := 0
	for i < len(o.recent) && o.recent[i].at.Before(limit) {
		i++
	}
	o.recent = append([]sentReport(nil), o.recent[i:]...)
}

// settle tells those who wait for the queue to be empty.
func (o *outbox) settle() {
	if o.idle != nil && (!o.connected || len(o.queue) == 0 && !o.inFlight) {
		close(o.idle)
		o.idle = nil
	}
}

func (o *outbox) flushed(ctx context.Context) {
	o.mu.Lock()
	if !o.connected || len(o.queue) == 0 && !o.inFlight {
		o.mu.Unlock()
		return
	}
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// kept reports whether a report outlives the connection to a leader.
func kept(m *clusterv1.SessionRequest) bool {
	switch m := m.GetMessage().(type) {
	case *clusterv1.SessionRequest_WorkerExited:
		return true
	case *clusterv1.SessionRequest_WorkerEvent:
		e := m.WorkerEvent.GetEvent()
		return e.GetCheckpointAck() == nil && e.GetCheckpointDeclined() == nil && e.GetStatistics() == nil
	default:
		return false
	}
}
