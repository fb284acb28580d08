package control

import (
	"sync"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
)

// outbox holds events until they are sent. It is unbounded, since no task may wait for the control connection; what makes events is
// bounded by itself.
type outbox struct {
	wake chan struct{}

	mu     sync.Mutex
	events []*workerv1.Event
	closed bool
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func (o *outbox) put(e *workerv1.Event) {
	o.mu.Lock()
	if !o.closed {
		o.events = append(o.events, e)
	}
	o.mu.Unlock()
	o.signal()
}

// close lets pump return when everything is sent.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) take() (events []*workerv1.Event, closed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	events, o.events = o.events, nil
	return events, o.closed
}

// heartbeatInterval is how long the TaskManager hears nothing of a process that runs; it allows no silence below 2 s. Once its tasks run, a
// worker reports each second, so that it is woken once.
const heartbeatInterval = 1200 * time.Millisecond

// pump sends what is put, and heartbeats, until the outbox is closed and empty, and then ends the sending side.
func (o *outbox) pump(stream grpc.BidiStreamingClient[workerv1.ControlRequest, workerv1.ControlResponse]) error {
	beat := &workerv1.ControlRequest{Event: &workerv1.Event{Event: &workerv1.Event_Heartbeat{Heartbeat: &workerv1.Heartbeat{}}}}
	beats := time.NewTicker(heartbeatInterval)
	defer beats.Stop()
	for {
		events, closed := o.take()
		for _, e := range events {
			if err := stream.Send(&workerv1.ControlRequest{Event: e}); err != nil {
				return err
			}
			switch {
			case e.GetCheckpointAck() != nil:
				faultpoint.Hit(faultpoint.AckSent)
			case e.GetCommitAcked() != nil:
				faultpoint.Hit(faultpoint.CommitAckSent)
			}
		}
		if len(events) > 0 {
			beats.Reset(heartbeatInterval)
		}
		if closed && len(events) == 0 {
			return stream.CloseSend()
		}
		if closed {
			continue
		}
		select {
		case <-o.wake:
		case <-beats.C:
			if err := stream.Send(beat); err != nil {
				return err
			}
		}
	}
}
