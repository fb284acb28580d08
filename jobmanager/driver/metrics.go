package driver

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the figures of all drivers.
type Metrics struct {
	triggered, completed, aborted prometheus.Counter
	failures, restarts            prometheus.Counter
	deleted, deleteErrors         prometheus.Counter
	commitSeconds, duration       prometheus.Histogram
	jobs                          prometheus.Gauge
	transactionAge                *prometheus.GaugeVec
	uncovered                     *uncovered
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "weir", Subsystem: "jobmanager", Name: name, Help: help})
		reg.MustRegister(c)
		return c
	}
	histogram := func(name, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "weir", Subsystem: "jobmanager", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 17),
		})
		reg.MustRegister(h)
		return h
	}
	jobs := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "jobmanager", Name: "jobs_live", Help: "Jobs that have not ended, on the leader."})
	reg.MustRegister(jobs)
	age := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "weir", Subsystem: "jobmanager", Name: "transaction_age_ratio",
		Help: "Age of the job's transaction that is nearest to its timeout, as a part of that.",
	}, []string{"job"})
	reg.MustRegister(age)
	covers := &uncovered{
		jobs: make(map[string]*coverage),
		desc: prometheus.NewDesc("weir_jobmanager_uncovered_changes_seconds",
			"Age of the job's oldest change that no completed checkpoint covers; 0 when it is idle.", []string{"job"}, nil),
	}
	reg.MustRegister(covers)
	return &Metrics{
		triggered:     counter("checkpoints_triggered_total", "Checkpoints triggered."),
		completed:     counter("checkpoints_completed_total", "Checkpoints whose completion is in the log."),
		aborted:       counter("checkpoints_aborted_total", "Checkpoints given up."),
		failures:      counter("attempt_failures_total", "Attempts of jobs that failed."),
		restarts:      counter("job_restarts_total", "Restarts of jobs after a failure."),
		deleted:       counter("files_deleted_total", "Files deleted from checkpoint storage."),
		deleteErrors:  counter("cleanup_errors_total", "Deletions on checkpoint storage that failed; they are tried again."),
		commitSeconds: histogram("checkpoint_commit_seconds", "Time of the log entry that completes a checkpoint."),
		duration:      histogram("checkpoint_duration_seconds", "Time from a checkpoint's trigger until its metadata was durable."),
		jobs:          jobs, transactionAge: age, uncovered: covers,
	}
}

// uncovered is a gauge that is worked out when it is asked for: it grows while nothing happens.
type uncovered struct {
	desc *prometheus.Desc

	mu   sync.Mutex
	jobs map[string]*coverage // by the job's name
}

func (u *uncovered) add(name string, c *coverage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.jobs[name] = c
}

// remove removes a job, unless another one has got its name.
func (u *uncovered) remove(name string, c *coverage) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.jobs[name] == c {
		delete(u.jobs, name)
	}
}

// Describe implements prometheus.Collector.
func (u *uncovered) Describe(descs chan<- *prometheus.Desc) { descs <- u.desc }

// Collect implements prometheus.Collector.
func (u *uncovered) Collect(metrics chan<- prometheus.Metric) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for name, c := range u.jobs {
		metrics <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, c.uncovered(now).Seconds(), name)
	}
}
