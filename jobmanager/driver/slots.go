package driver

import (
	"cmp"
	"slices"
	"sync"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

// slots hands out the slots of the connected TaskManagers to drivers.
type slots struct {
	sessions Sessions

	mu      sync.Mutex
	held    map[string][]*raftv1.Placement
	waiting map[string]*slotRequest
}

type slotRequest struct {
	job    scheduler.Job
	order  int64 // jobs are served in the order of their creation
	box    *mailbox
	answer string
}

func newSlots(sessions Sessions) *slots {
	return &slots{sessions: sessions, held: make(map[string][]*raftv1.Placement), waiting: make(map[string]*slotRequest)}
}

// request asks for the slots of a job; slotsGranted comes into its mailbox when there are enough.
func (s *slots) request(rec *raftv1.JobRecord, box *mailbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[rec.GetId()] = &slotRequest{
		job: scheduler.Job{
			ID: rec.GetId(), Name: rec.GetName(), Slots: scheduler.SlotsOf(rec.GetGraph()), Former: rec.GetPlacements(),
		},
		order: rec.GetCreatedAtMs(), box: box,
	}
	s.schedule()
}

// hold gives a job the slots that its attempt of a former leader has.
func (s *slots) hold(rec *raftv1.JobRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[rec.GetId()] = rec.GetPlacements()
}

// withdraw takes a request back.
func (s *slots) withdraw(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, jobID)
}

// release gives a job's slots back.
func (s *slots) release(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.held[jobID]; !ok {
		return
	}
	delete(s.held, jobID)
	s.schedule()
}

// changed looks again after TaskManagers came or went.
func (s *slots) changed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedule()
}

// missing says what a waiting job waits for.
func (s *slots) missing(rec *raftv1.JobRecord) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.waiting[rec.GetId()]; r != nil {
		return r.answer
	}
	return ""
}

// totals returns how many slots of the connected TaskManagers are free, and how many there are.
func (s *slots) totals() (free, total int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, tm := range s.sessions.TaskManagers() {
		if tm.Connected && !tm.Leaving {
			total += tm.Slots
		}
	}
	for _, tm := range s.free() {
		free += max(0, tm.Free)
	}
	return free, total
}

// free returns the free slots of each connected TaskManager.
func (s *slots) free() []scheduler.TaskManager {
	used := make(map[string]int)
	for _, placements := range s.held {
		for _, p := range placements {
			used[p.GetTaskmanagerId()]++
		}
	}
	var out []scheduler.TaskManager
	for _, tm := range s.sessions.TaskManagers() {
		if tm.Connected && !tm.Leaving {
			out = append(out, scheduler.TaskManager{ID: tm.ID, Incarnation: tm.Incarnation, Host: tm.Host, Free: tm.Slots - used[tm.ID]})
		}
	}
	return out
}

func (s *slots) schedule() {
	if len(s.waiting) == 0 {
		return
	}
	var jobs []scheduler.Job
	for _, r := range s.waiting {
		jobs = append(jobs, r.job)
	}
	slices.SortFunc(jobs, func(a, b scheduler.Job) int {
		return cmp.Or(cmp.Compare(s.waiting[a.ID].order, s.waiting[b.ID].order), cmp.Compare(a.ID, b.ID))
	})
	for _, d := range scheduler.Schedule(s.free(), jobs) {
		r := s.waiting[d.JobID]
		if d.Placements == nil {
			r.answer = d.Waiting
			continue
		}
		delete(s.waiting, d.JobID)
		s.held[d.JobID] = d.Placements
		r.box.put(slotsGranted{placements: d.Placements})
	}
}
