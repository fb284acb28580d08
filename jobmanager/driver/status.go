package driver

import (
	"sync"
	"sync/atomic"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/jobmanager/checkpoint"
)

// status holds the figures of a job's tasks, which do not pass through the driver.
type status struct {
	// live is the attempt whose workers are wanted; 0 for none.
	live atomic.Uint64

	mu      sync.Mutex
	sources map[string]bool
	tasks   map[checkpoint.TaskID]*jobv1.TaskStatistics
	reports map[string]report // by the task's name
	// samples are those of each source task, oldest first.
	samples map[checkpoint.TaskID][]sample
	// restore is the last start; nil when a former leader saw it.
	restore *restoration
}

// report is the last one of a task.
type report struct {
	statistics *jobv1.TaskStatistics
	at         time.Time
	perSecond  float64 // records taken in since the one before
}

// sample is the number of records that a source task had read at a time.
type sample struct {
	at    time.Time
	total uint64
}

// Figures are what the tasks of a job report.
type Figures struct {
	Tasks map[checkpoint.TaskID]*jobv1.TaskStatistics
	// RecordsPerSecond is the sum over the sources; -1 while no attempt runs or too little is known to tell.
	RecordsPerSecond float64
	// LagRecords is the sum over the sources; -1 when unknown.
	LagRecords int64
	// Uncovered is the age of the oldest change that no completed checkpoint covers; 0 for an idle job.
	Uncovered time.Duration
	// Restore is the last start; nil when this leader did not see it.
	Restore *jobv1.Restore
}

func newStatus() *status {
	return &status{
		tasks: make(map[checkpoint.TaskID]*jobv1.TaskStatistics), reports: make(map[string]report),
		samples: make(map[checkpoint.TaskID][]sample),
	}
}

// begin forgets the figures of the former attempt.
func (s *status) begin(rec *raftv1.JobRecord, att *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = make(map[checkpoint.TaskID]*jobv1.TaskStatistics)
	s.samples, s.reports = make(map[checkpoint.TaskID][]sample), make(map[string]report)
	s.sources = make(map[string]bool)
	for _, v := range rec.GetGraph().GetVertices() {
		if v.GetSource() {
			s.sources[v.GetId()] = true
		}
	}
	s.live.Store(att.number)
}

func (s *status) statistics(st *workerv1.Statistics) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range st.GetTasks() {
		id := checkpoint.TaskID{Vertex: t.GetVertex(), Subtask: t.GetSubtask()}
		s.tasks[id] = t
		r, last := report{statistics: t, at: now}, s.reports[id.String()]
		if span := now.Sub(last.at); last.statistics != nil && span > 0 && t.GetRecordsIn() >= last.statistics.GetRecordsIn() {
			r.perSecond = float64(t.GetRecordsIn()-last.statistics.GetRecordsIn()) / span.Seconds()
		}
		s.reports[id.String()] = r
		if s.sources[id.Vertex] {
			kept := append(s.samples[id], sample{now, max(t.GetRecordsIn(), t.GetRecordsOut())})
			for len(kept) > 2 && now.Sub(kept[1].at) >= rateWindow {
				kept = kept[1:]
			}
			s.samples[id] = kept
		}
	}
}

// transactionAge is the age of the transaction that is nearest to its timeout, as a part of that.
func (s *status) transactionAge() (part float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.GetTransactionTimeoutMs() > 0 {
			part = max(part, float64(t.GetOldestTransactionMs())/float64(t.GetTransactionTimeoutMs()))
		}
	}
	return part
}

func (s *status) figures() Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := Figures{Tasks: make(map[checkpoint.TaskID]*jobv1.TaskStatistics, len(s.tasks)), RecordsPerSecond: -1, LagRecords: -1, Restore: s.restore.describe()}
	for id, t := range s.tasks {
		f.Tasks[id] = t
		if s.sources[id.Vertex] && t.GetLagRecords() >= 0 {
			f.LagRecords = max(f.LagRecords, 0) + t.GetLagRecords()
		}
	}
	if s.live.Load() == 0 {
		return f
	}
	// Each task has its own samples: workers report one after the other, and what one has read before its first report is no rate.
	for _, samples := range s.samples {
		first, last := samples[0], samples[len(samples)-1]
		if span := last.at.Sub(first.at); span > 0 && time.Since(last.at) < rateWindow && last.total >= first.total {
			f.RecordsPerSecond = max(f.RecordsPerSecond, 0) + float64(last.total-first.total)/span.Seconds()
		}
	}
	return f
}
