package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
)

// Handler is told what happens to TaskManagers. Calls must return soon and must not call Close.
type Handler interface {
	// Stale returns those of a TaskManager's running attempts that must be stopped.
	Stale(running []*clusterv1.RunningAttempt) []*clusterv1.RunningAttempt
	// Joined tells of a new TaskManager, or of a new incarnation after Lost of the former one.
	Joined(tm TaskManager, running []*clusterv1.RunningAttempt)
	// Interrupted tells that the session broke; Resumed or Lost follows.
	Interrupted(tm TaskManager)
	// Resumed tells that the same incarnation is back. Messages of both directions may have been lost.
	Resumed(tm TaskManager, running []*clusterv1.RunningAttempt)
	// Leaving tells that the TaskManager shuts down in order: it stops its workers and reports their ends. Lost follows.
	Leaving(tm TaskManager)
	// Lost tells that the TaskManager is gone. dead is true when its workers are proven dead too.
	Lost(tm TaskManager, reason string, dead bool)
	// WorkerEvent and WorkerExited relay what a TaskManager reports.
	WorkerEvent(tm TaskManager, ev *clusterv1.WorkerEvent)
	WorkerExited(tm TaskManager, ev *clusterv1.WorkerExited)
}

// Config describes a registry.
type Config struct {
	ClusterID string
	// Term is the Raft term of this leadership.
	Term uint64
	// Probe returns the name and content of the cluster's probe object on checkpoint storage.
	Probe func(ctx context.Context) (object, content string, err error)
	// StorageURL is named when a TaskManager cannot see the probe object.
	StorageURL string
	// HeartbeatInterval and HeartbeatTimeout: see Registered.
	HeartbeatInterval, HeartbeatTimeout time.Duration
	// Grace is the time in which a broken session may be resumed.
	Grace   time.Duration
	Handler Handler
	Logger  *slog.Logger
}

// TaskManager is what is known of one TaskManager.
type TaskManager struct {
	ID, Incarnation, Host, Version, Platform string
	Slots, FreeSlots                         int
	// Connected is false while a broken session may still be resumed.
	Connected bool
	// Leaving is true once it has announced its shutdown: it gets no work any more.
	Leaving bool
	// LastSeen is the time since the last message.
	LastSeen time.Duration
}

// Registry holds the sessions of one leadership.
type Registry struct {
	cfg Config

	mu     sync.Mutex
	tms    map[string]*entry
	plans  map[string]chan *clusterv1.JobPlanned
	logs   map[string]*logRead
	closed bool
	done   chan struct{}
	wg     sync.WaitGroup
}

// entry is one TaskManager. serial orders its handler calls and is taken before Registry.mu.
type entry struct {
	serial sync.Mutex

	tm       TaskManager
	session  *session // nil while disconnected
	lost     bool
	accepted bool          // Joined has been called
	resumed  chan struct{} // closed when a broken session is replaced; nil while none is awaited
}

// New returns a registry without sessions.
func New(cfg Config) *Registry {
	return &Registry{
		cfg:   cfg,
		tms:   make(map[string]*entry),
		plans: make(map[string]chan *clusterv1.JobPlanned),
		logs:  make(map[string]*logRead),
		done:  make(chan struct{}),
	}
}

// Close ends all sessions and waits for their goroutines; the handler is not called any more.
func (r *Registry) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.done)
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// TaskManagers returns all that are connected or may still come back, sorted by id.
func (r *Registry) TaskManagers() []TaskManager {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]TaskManager, 0, len(r.tms))
	for _, e := range r.tms {
		if !e.accepted || e.lost {
			continue
		}
		tm := e.tm
		tm.Connected = e.session != nil
		if e.session != nil {
			tm.LastSeen = e.session.silence()
			tm.FreeSlots = int(e.session.freeSlots.Load())
		}
		out = append(out, tm)
	}
	slices.SortFunc(out, func(a, b TaskManager) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Send queues a message for a TaskManager. The error says that it is not connected; a queued message may still be lost with its
// session, which the handler is told.
func (r *Registry) Send(tmID string, msg *clusterv1.SessionResponse) error {
	r.mu.Lock()
	var s *session
	if e := r.tms[tmID]; e != nil && e.accepted && !r.closed {
		s = e.session
	}
	r.mu.Unlock()
	if s == nil {
		return fmt.Errorf("TaskManager %s: %w", tmID, grpcerr.ErrNoTaskManager)
	}
	return s.send(msg)
}

// admit makes s the session of its TaskManager and tells the handler.
func (r *Registry) admit(s *session, reg *clusterv1.Register) error {
	tm := TaskManager{
		ID: reg.GetTaskmanagerId(), Incarnation: reg.GetIncarnation(), Host: reg.GetHost(), Version: reg.GetVersion(),
		Platform: reg.GetPlatform(), Slots: int(reg.GetSlots()), FreeSlots: int(reg.GetSlots()), Connected: true,
	}
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return &grpcerr.NotLeaderError{}
	}
	e := r.tms[tm.ID]
	if e == nil {
		e = &entry{}
		r.tms[tm.ID] = e
	}
	old := e.session
	r.mu.Unlock()
	if old != nil {
		old.end(fmt.Errorf("TaskManager %s opened another session", tm.ID))
		<-old.readerDone
	}

	e.serial.Lock()
	defer e.serial.Unlock()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return &grpcerr.NotLeaderError{}
	}
	if s.left {
		r.mu.Unlock()
		return errors.New("session ended during registration")
	}
	if e.session != nil && e.session != s && e.session != old {
		r.mu.Unlock()
		return fmt.Errorf("TaskManager %s opened several sessions at once", tm.ID)
	}
	if e.resumed != nil {
		close(e.resumed)
		e.resumed = nil
	}
	former, known, interrupted := e.tm, e.accepted && !e.lost, e.session != nil
	same := former.Incarnation == tm.Incarnation
	tm.Leaving = same && former.Leaving
	e.tm, e.session, e.lost, e.accepted = tm, s, false, true
	s.entry = e
	r.mu.Unlock()

	switch {
	case known && same:
		if interrupted {
			r.cfg.Handler.Interrupted(tm)
		}
		r.cfg.Handler.Resumed(tm, reg.GetRunning())
	default:
		if known {
			former.Connected = false
			r.cfg.Handler.Lost(former, "it was started anew", true)
		}
		r.cfg.Handler.Joined(tm, reg.GetRunning())
	}
	return nil
}

// leave takes a session that ended out of its entry. at once says that the TaskManager will not resume it.
func (r *Registry) leave(s *session, reason string, atOnce bool) {
	r.mu.Lock()
	s.left = true
	e := s.entry
	r.mu.Unlock()
	if e == nil {
		return
	}
	e.serial.Lock()
	defer e.serial.Unlock()
	r.mu.Lock()
	if r.closed || e.session != s {
		r.mu.Unlock()
		return
	}
	e.session = nil
	tm := e.tm
	tm.Connected = false
	if atOnce || r.cfg.Grace <= 0 {
		e.lost = true
		r.mu.Unlock()
		r.cfg.Handler.Lost(tm, reason, false)
		return
	}
	e.resumed = make(chan struct{})
	r.wg.Add(1)
	go r.expire(e, tm, reason, e.resumed)
	r.mu.Unlock()
	r.cfg.Handler.Interrupted(tm)
}

// expire makes a TaskManager lost when it does not come back in time.
func (r *Registry) expire(e *entry, tm TaskManager, reason string, resumed <-chan struct{}) {
	defer r.wg.Done()
	t := time.NewTimer(r.cfg.Grace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-resumed:
		return
	case <-r.done:
		return
	}
	e.serial.Lock()
	defer e.serial.Unlock()
	r.mu.Lock()
	if r.closed || e.session != nil || e.lost || e.tm.Incarnation != tm.Incarnation {
		r.mu.Unlock()
		return
	}
	e.lost = true
	r.mu.Unlock()
	r.cfg.Handler.Lost(tm, reason, false)
}
