package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

const (
	// outboxSize bounds the commands waiting for one TaskManager. One that lets so many pile up does not read, and its session ends.
	outboxSize = 4096
	// registerTimeout bounds registration, the look at the probe object included.
	registerTimeout = 30 * time.Second
)

// session is one stream of a TaskManager.
type session struct {
	r         *Registry
	stream    clusterv1.SessionService_SessionServer
	start     time.Time
	entry     *entry // set when admitted; guarded by Registry.mu until then
	left      bool   // Serve has ended it; guarded by Registry.mu
	outbox    chan *clusterv1.SessionResponse
	freeSlots atomic.Int64
	// lastSeen is the time of the last message, in nanoseconds after start.
	lastSeen   atomic.Int64
	goodbye    atomic.Bool
	readerDone chan struct{}

	once  sync.Once
	ended chan struct{}
	cause error // set before ended is closed
}

// Serve runs the session of one TaskManager until it ends, and returns why.
func (r *Registry) Serve(stream clusterv1.SessionService_SessionServer) error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return &grpcerr.NotLeaderError{}
	}
	r.wg.Add(3)
	r.mu.Unlock()
	defer r.wg.Done()
	s := &session{
		r: r, stream: stream, start: time.Now(),
		outbox:     make(chan *clusterv1.SessionResponse, outboxSize),
		readerDone: make(chan struct{}),
		ended:      make(chan struct{}),
	}
	writerDone := make(chan struct{})
	go func() {
		defer r.wg.Done()
		defer close(s.readerDone)
		s.end(s.read())
	}()
	go func() {
		defer r.wg.Done()
		defer close(writerDone)
		if err := s.write(); err != nil {
			s.end(err)
		}
	}()
	silent := s.watch()
	r.leave(s, s.cause.Error(), silent || s.goodbye.Load())
	// A message queued with the refusal or before the end still goes out; a writer stuck in a dead connection is freed by the
	// return.
	select {
	case <-writerDone:
	case <-time.After(100 * time.Millisecond):
	}
	return s.cause
}

// watch waits for the end of the session and reports whether silence ended it.
func (s *session) watch() bool {
	timeout := s.r.cfg.HeartbeatTimeout
	t := time.NewTimer(timeout)
	defer t.Stop()
	due := time.Now().Add(timeout)
	for {
		select {
		case <-t.C:
			now := time.Now()
			if stoodStill(due, now, timeout) {
				s.lastSeen.Store(int64(now.Sub(s.start)))
			}
			quiet := s.silence()
			if quiet >= timeout {
				s.end(fmt.Errorf("no sign of life for %s", quiet.Round(10*time.Millisecond)))
				<-s.ended
				return true
			}
			t.Reset(timeout - quiet)
			due = now.Add(timeout - quiet)
		case <-s.r.done:
			s.end(&grpcerr.NotLeaderError{})
			return false
		case <-s.stream.Context().Done():
			s.end(fmt.Errorf("connection is gone: %w", s.stream.Context().Err()))
			return false
		case <-s.ended:
			return false
		}
	}
}

// stoodStill reports whether this process did not run when it should have looked, a quarter of the timeout at least. Then the silence was
// its own: what others have sent meanwhile is not read yet, and it may lead no longer without knowing.
func stoodStill(due, now time.Time, timeout time.Duration) bool { return now.Sub(due) > timeout/4 }

// end ends the session; the first cause counts.
func (s *session) end(cause error) {
	s.once.Do(func() {
		s.cause = cause
		close(s.ended)
	})
}

func (s *session) silence() time.Duration {
	return max(0, time.Since(s.start)-time.Duration(s.lastSeen.Load()))
}

// send queues a message.
func (s *session) send(msg *clusterv1.SessionResponse) error {
	msg.Term = s.r.cfg.Term
	select {
	case <-s.ended:
		return fmt.Errorf("session has ended: %w", grpcerr.ErrNoTaskManager)
	default:
	}
	select {
	case s.outbox <- msg:
		return nil
	default:
		err := fmt.Errorf("%d messages wait to be read: %w", outboxSize, grpcerr.ErrNoTaskManager)
		s.end(err)
		return err
	}
}

func (s *session) write() error {
	interval := s.r.cfg.HeartbeatInterval
	t := time.NewTimer(interval)
	defer t.Stop()
	for {
		var msg *clusterv1.SessionResponse
		select {
		case msg = <-s.outbox:
		case <-t.C:
			msg = &clusterv1.SessionResponse{
				Term:    s.r.cfg.Term,
				Message: &clusterv1.SessionResponse_Heartbeat{Heartbeat: &clusterv1.Heartbeat{}},
			}
		case <-s.ended:
			return nil
		}
		if err := s.stream.Send(msg); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		t.Reset(interval)
	}
}

func (s *session) recv() (*clusterv1.SessionRequest, error) {
	msg, err := s.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("session was closed by the TaskManager")
	} else if err != nil {
		return nil, fmt.Errorf("connection broke: %w", err)
	}
	s.lastSeen.Store(int64(time.Since(s.start)))
	if msg.GetTerm() > s.r.cfg.Term {
		return nil, fmt.Errorf("%w: the TaskManager has seen term %d, this leader has %d", grpcerr.ErrStaleTerm, msg.GetTerm(), s.r.cfg.Term)
	}
	return msg, nil
}

// read handles the messages of the TaskManager until the session ends.
func (s *session) read() error {
	ctx, cancel := context.WithTimeout(s.stream.Context(), registerTimeout)
	tm, err := s.register(ctx)
	cancel()
	if err != nil {
		return err
	}
	logger := s.r.cfg.Logger.With("taskmanager", tm.ID, "host", tm.Host)
	logger.Info("taskmanager session begins", "slots", tm.Slots, "version", tm.Version)
	defer func() { logger.Info("taskmanager session ends") }()
	for {
		msg, err := s.recv()
		if err != nil {
			return err
		}
		select {
		case <-s.ended: // replaced or silent: what it says now is not heard
			return s.cause
		default:
		}
		s.handle(tm, msg)
	}
}

func (s *session) handle(tm TaskManager, msg *clusterv1.SessionRequest) {
	switch m := msg.GetMessage().(type) {
	case *clusterv1.SessionRequest_Heartbeat:
		s.freeSlots.Store(int64(m.Heartbeat.GetFreeSlots()))
	case *clusterv1.SessionRequest_WorkerEvent:
		s.entry.serial.Lock()
		defer s.entry.serial.Unlock()
		s.r.cfg.Handler.WorkerEvent(tm, m.WorkerEvent)
	case *clusterv1.SessionRequest_WorkerExited:
		s.entry.serial.Lock()
		defer s.entry.serial.Unlock()
		s.r.cfg.Handler.WorkerExited(tm, m.WorkerExited)
	case *clusterv1.SessionRequest_JobPlanned:
		s.r.planned(m.JobPlanned)
	case *clusterv1.SessionRequest_LogChunk:
		s.r.logChunk(m.LogChunk)
	case *clusterv1.SessionRequest_Goodbye:
		s.goodbye.Store(true)
		s.entry.serial.Lock()
		defer s.entry.serial.Unlock()
		s.r.mu.Lock()
		s.entry.tm.Leaving = true
		tm = s.entry.tm
		s.r.mu.Unlock()
		s.r.cfg.Handler.Leaving(tm)
	}
}
