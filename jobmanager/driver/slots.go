package driver

import (
	"cmp"
	"slices"
	"sync"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/scheduler"
)

// slots hands out the slots of the connected TaskManagers to drivers.
type slots struct {
	sessions Sessions

	mu   sync.Mutex
	held map[string][]*raftv1.Placement
	// reserved are for the next attempt of a job that is being rescaled; they may be the same as those it holds.
	reserved map[string][]*raftv1.Placement
	waiting  map[string]*slotRequest
}

type slotRequest struct {
	job    scheduler.Job
	order  int64 // jobs are served in the order of their creation
	box    *mailbox
	answer string
}

func newSlots(sessions Sessions) *slots {
	return &slots{sessions: sessions, held: make(map[string][]*raftv1.Placement), reserved: make(map[string][]*raftv1.Placement), waiting: make(map[string]*slotRequest)}
}

// request asks for the slots of a job; slotsGranted comes into its mailbox when there are enough.
func (s *slots) request(rec *raftv1.JobRecord, box *mailbox) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[rec.GetId()] = &slotRequest{
		job: scheduler.Job{
			ID: rec.GetId(), Name: rec.GetName(), Slots: scheduler.SlotsOf(fsm.Next(rec)), Former: rec.GetPlacements(),
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

// waits reports whether a job waits for slots.
func (s *slots) waits(jobID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[jobID] != nil
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
	return s.freeFor("")
}

// freeFor counts what one job holds or has reserved as free.
func (s *slots) freeFor(jobID string) []scheduler.TaskManager {
	used := make(map[string]int)
	for id, placements := range s.held {
		if id != jobID {
			for tm, n := range byTaskManager(placements) {
				used[tm] += max(n, byTaskManager(s.reserved[id])[tm])
			}
		}
	}
	for id, placements := range s.reserved {
		if id != jobID {
			held := byTaskManager(s.held[id])
			for tm, n := range byTaskManager(placements) {
				if held[tm] == 0 { // else counted above
					used[tm] += n
				}
			}
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

func byTaskManager(placements []*raftv1.Placement) map[string]int {
	n := make(map[string]int)
	for _, p := range placements {
		n[p.GetTaskmanagerId()]++
	}
	return n
}

// offered says what is missing for a job to run a graph, with what it has and what is free; empty for nothing.
func (s *slots) offered(jobID string, g *jobv1.Graph) (missing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return scheduler.Schedule(s.freeFor(jobID), []scheduler.Job{{ID: jobID, Slots: scheduler.SlotsOf(g)}})[0].Waiting
}

// reserve takes the slots that a job is going to run a graph on, those that it has included, so that no other job gets them meanwhile.
func (s *slots) reserve(rec *raftv1.JobRecord, g *jobv1.Graph) (missing string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := scheduler.Schedule(s.freeFor(rec.GetId()), []scheduler.Job{{
		ID: rec.GetId(), Name: rec.GetName(), Slots: scheduler.SlotsOf(g), Former: rec.GetPlacements(),
	}})[0]
	if d.Placements == nil {
		return d.Waiting
	}
	s.reserved[rec.GetId()] = d.Placements
	return ""
}

// unreserve gives up what a job has reserved.
func (s *slots) unreserve(jobID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.reserved[jobID]; ok {
		delete(s.reserved, jobID)
		s.schedule()
	}
}

// claim turns what a job has reserved into what it holds, and returns it; nil when there is nothing or some of it is gone.
func (s *slots) claim(jobID string) []*raftv1.Placement {
	s.mu.Lock()
	defer s.mu.Unlock()
	placements := s.reserved[jobID]
	delete(s.reserved, jobID)
	if placements == nil {
		return nil
	}
	there := make(map[string]string)
	for _, tm := range s.sessions.TaskManagers() {
		if tm.Connected && !tm.Leaving {
			there[tm.ID] = tm.Incarnation
		}
	}
	for _, p := range placements {
		if there[p.GetTaskmanagerId()] != p.GetIncarnation() {
			s.schedule()
			return nil
		}
	}
	s.held[jobID] = placements
	return placements
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
