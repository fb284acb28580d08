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
	samples []sample
}

// report is the last one of a task.
type report struct {
	statistics *jobv1.TaskStatistics
	at         time.Time
	perSecond  float64 // records taken in since the one before
}

// sample is the total of records read at a time.
type sample struct {
	at    time.Time
	total uint64
}

// Figures are what the tasks of a job report.
type Figures struct {
	Tasks            map[checkpoint.TaskID]*jobv1.TaskStatistics
	RecordsPerSecond float64
	// LagRecords is the sum over the sources; -1 when unknown.
	LagRecords int64
}

func newStatus() *status {
	return &status{tasks: make(map[checkpoint.TaskID]*jobv1.TaskStatistics), reports: make(map[string]report)}
}

// begin forgets the figures of the former attempt.
func (s *status) begin(rec *raftv1.JobRecord, att *attempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks = make(map[checkpoint.TaskID]*jobv1.TaskStatistics)
	s.samples, s.reports = nil, make(map[string]report)
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
	}
	var total uint64
	for id, t := range s.tasks {
		if s.sources[id.Vertex] {
			total += max(t.GetRecordsIn(), t.GetRecordsOut())
		}
	}
	s.samples = append(s.samples, sample{now, total})
	for len(s.samples) > 2 && now.Sub(s.samples[1].at) >= rateWindow {
		s.samples = s.samples[1:]
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
	f := Figures{Tasks: make(map[checkpoint.TaskID]*jobv1.TaskStatistics, len(s.tasks)), LagRecords: -1}
	for id, t := range s.tasks {
		f.Tasks[id] = t
		if s.sources[id.Vertex] && t.GetLagRecords() >= 0 {
			f.LagRecords = max(f.LagRecords, 0) + t.GetLagRecords()
		}
	}
	if n := len(s.samples); n > 1 {
		first, last := s.samples[0], s.samples[n-1]
		span := last.at.Sub(first.at)
		if span > 0 && time.Since(last.at) < rateWindow && last.total >= first.total {
			f.RecordsPerSecond = float64(last.total-first.total) / span.Seconds()
		}
	}
	return f
}
