package driver

import (
	"cmp"
	"context"
	"sync"
	"time"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/registry"
)

// Manager runs the drivers of one leadership.
type Manager struct {
	cfg      Config
	sessions Sessions
	slots    *slots

	artifacts artifacts

	ctx    context.Context //nolint:containedctx // of the leadership, which bounds every driver
	cancel context.CancelFunc

	mu     sync.Mutex
	jobs   map[string]*job
	closed bool
	// errands are workers of ended jobs, and unsettled wakes those that are settled from time to time; both by job.
	errands    map[string]*errand
	lastErrand uint64
	unsettled  map[string]chan struct{}
	wg         sync.WaitGroup
}

var _ registry.Handler = (*Manager)(nil)

// New returns a manager that does nothing before Start. Its drivers live as long as ctx.
func New(ctx context.Context, cfg Config) *Manager {
	if cfg.ArtifactAge == 0 {
		cfg.ArtifactAge = artifactAge
	}
	if cfg.ArtifactEvery == 0 {
		cfg.ArtifactEvery = cfg.ArtifactAge / artifactRounds
	}
	cfg.FenceEvery, cfg.SettleAgain = cmp.Or(cfg.FenceEvery, fenceEvery), cmp.Or(cfg.SettleAgain, settleAgainFirst)
	m := &Manager{
		cfg: cfg, jobs: make(map[string]*job), errands: make(map[string]*errand), unsettled: make(map[string]chan struct{}),
		artifacts: artifacts{used: make(map[string]time.Time)},
	}
	m.ctx, m.cancel = context.WithCancel(ctx)
	return m
}

// Start takes up every job that the log knows. No handler call may come before.
func (m *Manager) Start(sessions Sessions) {
	m.sessions = sessions
	m.slots = newSlots(sessions)
	m.goDo(m.cleanArtifacts)
	jobs := m.cfg.Log.View().Jobs()
	for _, rec := range jobs {
		if adoptable(rec) {
			m.slots.hold(rec) // before another job can ask for them
		}
	}
	for _, rec := range jobs {
		switch {
		case !fsm.Terminal(rec.GetState()):
			m.Add(rec)
		case len(rec.GetGarbage()) > 0, len(pinned(rec)) > 0:
			m.cleanEnded(rec)
		}
		if fsm.Terminal(rec.GetState()) {
			m.settleEnded(rec)
		}
	}
}

// Close stops all drivers and waits for them. They send nothing more once it was called.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.wg.Wait()
	m.cfg.Metrics.jobs.Set(0)
}

// goDo runs f on a goroutine that Close waits for; f must end when the manager's context does.
func (m *Manager) goDo(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.wg.Add(1)
	go func() {
		defer m.wg.Done()
		f()
	}()
}

// Add begins to drive a job that was put into the log; one that is driven already is left alone.
func (m *Manager) Add(rec *raftv1.JobRecord) {
	m.mu.Lock()
	if m.closed || m.jobs[rec.GetId()] != nil {
		m.mu.Unlock()
		return
	}
	j := newJob(m, rec)
	m.jobs[rec.GetId()] = j
	if rec.GetGraph().GetCheckpoints().GetEnabled() {
		m.cfg.Metrics.uncovered.add(j.name, j.covers)
	}
	m.cfg.Metrics.jobs.Set(float64(len(m.jobs)))
	m.wg.Add(1)
	m.mu.Unlock()
	go func() {
		defer m.wg.Done()
		j.run(m.ctx)
		m.mu.Lock()
		delete(m.jobs, j.id)
		m.cfg.Metrics.jobs.Set(float64(len(m.jobs)))
		m.mu.Unlock()
		m.cfg.Metrics.transactionAge.DeleteLabelValues(j.name)
		m.cfg.Metrics.uncovered.remove(j.name, j.covers)
		close(j.gone)
	}()
}

func (m *Manager) job(id string) *job {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.jobs[id]
}

func (m *Manager) all() []*job {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*job, 0, len(m.jobs))
	for _, j := range m.jobs {
		out = append(out, j)
	}
	return out
}

// Stale implements registry.Handler: every attempt that no driver wants is stale.
func (m *Manager) Stale(running []*clusterv1.RunningAttempt) []*clusterv1.RunningAttempt {
	var stale []*clusterv1.RunningAttempt
	for _, r := range running {
		if j := m.job(r.GetJobId()); (j == nil || j.status.live.Load() != r.GetAttempt()) && m.errandOf(r.GetJobId(), r.GetAttempt()) == nil {
			stale = append(stale, r)
		}
	}
	return stale
}

func (m *Manager) broadcast(ev tmChanged) {
	for _, j := range m.all() {
		j.box.put(ev)
	}
	m.mu.Lock()
	for _, e := range m.errands {
		e.box.put(ev)
	}
	m.mu.Unlock()
	m.slots.changed()
}

// Joined implements registry.Handler.
func (m *Manager) Joined(tm registry.TaskManager, running []*clusterv1.RunningAttempt) {
	m.broadcast(tmChanged{tm: tm, change: joined, running: running})
}

// Interrupted implements registry.Handler.
func (m *Manager) Interrupted(tm registry.TaskManager) {
	tm.Connected = false
	m.broadcast(tmChanged{tm: tm, change: interrupted})
}

// Resumed implements registry.Handler.
func (m *Manager) Resumed(tm registry.TaskManager, running []*clusterv1.RunningAttempt) {
	m.broadcast(tmChanged{tm: tm, change: resumed, running: running})
}

// Leaving implements registry.Handler.
func (m *Manager) Leaving(tm registry.TaskManager) {
	m.cfg.Logger.Info("taskmanager shuts down", "taskmanager", tm.ID, "host", tm.Host)
	m.broadcast(tmChanged{tm: tm, change: leaving})
}

// Lost implements registry.Handler.
func (m *Manager) Lost(tm registry.TaskManager, reason string, dead bool) {
	m.cfg.Logger.Warn("taskmanager is lost", "taskmanager", tm.ID, "host", tm.Host, "reason", reason)
	tm.Connected = false
	m.broadcast(tmChanged{tm: tm, change: lost, reason: reason, dead: dead})
}

// WorkerEvent implements registry.Handler.
func (m *Manager) WorkerEvent(tm registry.TaskManager, ev *clusterv1.WorkerEvent) {
	if e := m.errandOf(ev.GetJobId(), ev.GetAttempt()); e != nil {
		e.box.put(workerEvent{tm: tm, ev: ev})
		return
	}
	j := m.job(ev.GetJobId())
	if j == nil {
		return
	}
	if s := ev.GetEvent().GetStatistics(); s != nil {
		if j.status.live.Load() == ev.GetAttempt() {
			j.status.statistics(s)
			m.cfg.Metrics.transactionAge.WithLabelValues(j.name).Set(j.status.transactionAge())
		}
		return
	}
	j.box.put(workerEvent{tm: tm, ev: ev})
}

// WorkerExited implements registry.Handler.
func (m *Manager) WorkerExited(tm registry.TaskManager, ev *clusterv1.WorkerExited) {
	if e := m.errandOf(ev.GetJobId(), ev.GetAttempt()); e != nil {
		e.box.put(workerExited{tm: tm, ev: ev})
		return
	}
	if j := m.job(ev.GetJobId()); j != nil {
		j.box.put(workerExited{tm: tm, ev: ev})
	}
}

// Cancel ends a job without a last checkpoint. It returns when the log says that the job is ending.
func (m *Manager) Cancel(ctx context.Context, jobID, requestID string) error {
	reply := make(chan error, 1)
	answer, err := ask(ctx, m, jobID, cancelRequest{requestID, reply}, reply)
	return cmp.Or(err, answer)
}

// Stop ends a job with a last checkpoint, and with a savepoint when dir is not empty. It returns when the job is ending or the stop
// has failed.
func (m *Manager) Stop(ctx context.Context, jobID, requestID, dir string) error {
	reply := make(chan error, 1)
	answer, err := ask(ctx, m, jobID, stopRequest{requestID, dir, reply}, reply)
	return cmp.Or(err, answer)
}

// ask puts a request into the mailbox of a job's driver and waits for the answer. The error says that there is none.
func ask[A any](ctx context.Context, m *Manager, jobID string, ev any, reply <-chan A) (answer A, err error) {
	j := m.job(jobID)
	if j == nil {
		return answer, grpcerr.ErrJobEnded
	}
	j.box.put(ev)
	select {
	case answer = <-reply:
		return answer, nil
	case <-j.gone:
		// It may have answered before it went.
		select {
		case answer = <-reply:
			return answer, nil
		default:
			return answer, errLeadershipEnded
		}
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// Savepoint takes a savepoint into dir and returns its URL and checkpoint when it is complete.
func (m *Manager) Savepoint(ctx context.Context, jobID, requestID, dir string) (string, uint64, error) {
	reply := make(chan savepointReply, 1)
	r, err := ask(ctx, m, jobID, savepointRequest{requestID, dir, reply}, reply)
	return r.path, r.checkpoint, cmp.Or(err, r.err)
}

// progressWait bounds the wait for a driver that is busy with the log.
const progressWait = 500 * time.Millisecond

// Status returns what a driven job is doing; ok is false for one that no driver has.
func (m *Manager) Status(ctx context.Context, jobID string) (p Progress, f Figures, ok bool) {
	return m.status(ctx, jobID, nil)
}

// heldWait bounds the look at what readers of a job's output see.
const heldWait = 2 * time.Second

// Explain is Status that also looks at what keeps the output of a running job from being seen.
func (m *Manager) Explain(ctx context.Context, rec *raftv1.JobRecord) (p Progress, f Figures, ok bool) {
	var held []*jobv1.HeldOutput
	if rec.GetState() == jobv1.JobState_JOB_STATE_RUNNING {
		limited, cancel := context.WithTimeout(ctx, heldWait)
		a, err := m.Transactions(limited, rec, &workerv1.Transactions{Action: &workerv1.Transactions_Inspect{Inspect: &workerv1.InspectTransactions{}}})
		cancel()
		if err != nil {
			m.cfg.Logger.Debug("the transactions of a job cannot be looked at", "job", rec.GetId(), "error", err)
		}
		seen := make(map[string]bool)
		for _, d := range a.Done {
			for _, h := range d.GetHeld() {
				if !seen[h.GetPlace()] {
					held = append(held, h)
				}
				seen[h.GetPlace()] = true
			}
		}
	}
	return m.status(ctx, rec.GetId(), held)
}

func (m *Manager) status(ctx context.Context, jobID string, held []*jobv1.HeldOutput) (p Progress, f Figures, ok bool) {
	j := m.job(jobID)
	if j == nil {
		return p, f, false
	}
	reply := make(chan Progress, 1)
	j.box.put(statusRequest{reply, held})
	timer := time.NewTimer(progressWait)
	defer timer.Stop()
	select {
	case p = <-reply:
	case <-timer.C:
	case <-j.gone:
	case <-ctx.Done():
	}
	if rec, known := m.cfg.Log.View().Job(jobID); known && len(p.Explanation.Findings) == 0 {
		p.Explanation = Explain(rec) // the driver did not come to it
	}
	f = j.status.figures()
	f.Uncovered = j.covers.uncovered(time.Now())
	return p, f, true
}

// Slots returns the free and all slots of the connected TaskManagers.
func (m *Manager) Slots() (free, total int) { return m.slots.totals() }
