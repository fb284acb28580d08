package driver

import (
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// restoration is a start of the job as its leader sees it. It is not in the log: another leader does not know how long it took.
type restoration struct {
	attempt, checkpoint uint64
	// since is when the job failed or was to start.
	since time.Time
	// The time from one moment to the next, on the leader's clock; 0 while it has not come.
	scheduled, prepared, started, met time.Duration
	workers                           map[string]*workerv1.Restored // by TaskManager
}

// restoreBegins notes that an attempt has its places.
func (s *status) restoreBegins(attempt, checkpoint uint64, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restore = &restoration{
		attempt: attempt, checkpoint: checkpoint, since: since, scheduled: time.Since(since), workers: make(map[string]*workerv1.Restored),
	}
}

// restoreReaches notes that an attempt has come to a moment of its start.
func (s *status) restoreReaches(attempt uint64, moment func(*restoration) *time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.restore; r != nil && r.attempt == attempt && *moment(r) == 0 {
		*moment(r) = time.Since(r.since)
	}
}

func allPrepared(r *restoration) *time.Duration { return &r.prepared }
func allStarted(r *restoration) *time.Duration  { return &r.started }

// restored notes what a worker tells of its start.
func (s *status) restored(attempt uint64, tm string, e *workerv1.Restored) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.restore
	if r == nil || r.attempt != attempt {
		return
	}
	r.workers[tm] = e
	if e.FirstRecordUs != nil && r.met == 0 {
		r.met = time.Since(r.since)
	}
}

// describe puts the start together: one phase after the other.
func (r *restoration) describe() *jobv1.Restore {
	if r == nil {
		return nil
	}
	slowest := func(part func(*workerv1.Restored) *uint64) (d time.Duration) {
		for _, w := range r.workers {
			if us := part(w); us != nil {
				d = max(d, time.Duration(*us)*time.Microsecond)
			}
		}
		return d
	}
	out := &jobv1.Restore{Attempt: r.attempt, Checkpoint: r.checkpoint, Complete: r.met > 0}
	add := func(name string, d time.Duration) {
		out.Phases = append(out.Phases, &jobv1.RestorePhase{Name: name, DurationUs: uint64(max(0, d).Microseconds())})
	}
	add("schedule", r.scheduled)
	last := r.scheduled
	if r.prepared > 0 {
		plan := slowest(func(w *workerv1.Restored) *uint64 { return w.PlanUs })
		read := slowest(func(w *workerv1.Restored) *uint64 { return w.ReadUs })
		open := slowest(func(w *workerv1.Restored) *uint64 { return w.OpenUs })
		add("launch", r.prepared-r.scheduled-plan-read-open)
		add("plan", plan)
		add("read", read)
		add("open", open)
		last = r.prepared
	}
	if r.started > 0 {
		fence := slowest(func(w *workerv1.Restored) *uint64 { return w.FenceUs })
		add("fence", fence)
		// What the log and the way to the workers take is in it.
		add("connect", r.started-r.prepared-fence)
		last = r.started
	}
	if r.met > 0 {
		add("first record", r.met-r.started)
		last = max(last, r.met)
	}
	out.TotalUs = uint64(last.Microseconds())
	return out
}
