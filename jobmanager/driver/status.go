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
	quiet      time.Duration // for which nothing is to be expected, as nothing changes
	perSecond  float64       // records taken in since the one before
}

// lookEvery is how often a quiet worker looks for changes.
const lookEvery = time.Second

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sample is the number of records that a source task had read at a time.
type sample struct {
	at    time.Time
	quiet time.Duration // for which it holds
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
	now, quiet := time.Now(), ms(st.GetQuietMs())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range st.GetTasks() {
		id := checkpoint.TaskID{Vertex: t.GetVertex(), Subtask: t.GetSubtask()}
		s.tasks[id] = t
		r, last := report{statistics: t, at: now, quiet: quiet}, s.reports[id.String()]
		span := now.Sub(last.at)
		if last.quiet > 0 {
			span = min(span, lookEvery)
		}
		if last.statistics != nil && span > 0 && t.GetRecordsIn() >= last.statistics.GetRecordsIn() {
			r.perSecond = float64(t.GetRecordsIn()-last.statistics.GetRecordsIn()) / span.Seconds()
		}
		s.reports[id.String()] = r
		if s.sources[id.Vertex] {
			kept := s.samples[id]
			if n := len(kept); n > 0 && kept[n-1].quiet > 0 { // what is new has come since
				kept[n-1].at = later(kept[n-1].at, now.Add(-rateWindow))
			}
			kept = append(kept, sample{now, quiet, max(t.GetRecordsIn(), t.GetRecordsOut())})
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
	now := time.Now()
	for _, samples := range s.samples {
		if rate, known := rateOf(samples, now); known {
			f.RecordsPerSecond = max(f.RecordsPerSecond, 0) + rate
		}
	}
	return f
}

// rateOf returns the records per second that samples tell of at now.
func rateOf(samples []sample, now time.Time) (rate float64, known bool) {
	first, last := samples[0], samples[len(samples)-1]
	age := now.Sub(last.at)
	if age >= last.quiet+rateWindow || last.total < first.total {
		return 0, false
	}
	if last.quiet > 0 { // it would have reported a change
		if age >= rateWindow {
			return 0, true
		}
		last.at = last.at.Add(min(age, last.quiet))
	}
	span := last.at.Sub(first.at)
	if span <= 0 {
		return 0, false
	}
	return float64(last.total-first.total) / span.Seconds(), true
}
