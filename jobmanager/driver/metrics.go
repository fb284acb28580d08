package driver

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the figures of all drivers.
type Metrics struct {
	triggered, completed, aborted prometheus.Counter
	failures, restarts            prometheus.Counter
	deleted, deleteErrors         prometheus.Counter
	commitSeconds, duration       prometheus.Histogram
	jobs                          prometheus.Gauge
	transactionAge                *prometheus.GaugeVec
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
		jobs:          jobs, transactionAge: age,
	}
}
