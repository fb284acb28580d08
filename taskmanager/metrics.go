package taskmanager

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weir-stream/weir/taskmanager/segmentstore"
)

// register defines the TaskManager's metrics.
func (n *node) register(r *prometheus.Registry, segments *segmentstore.Store) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_taskmanager_" + name, Help: help}, value))
	}
	counter := func(name, help string, labels prometheus.Labels, value func() float64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "weir_taskmanager_" + name, Help: help, ConstLabels: labels}, value))
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	gauge("connected", "1 while a leading JobManager has taken this TaskManager on.", func() float64 {
		if n.session.Connected() {
			return 1
		}
		return 0
	})
	if n.tls != nil {
		gauge("tls_certificate_expires_timestamp_seconds", "When the node's certificate expires.", func() float64 { return float64(n.tls.Expires().Unix()) })
	}
	gauge("leader_term", "Highest leader term met.", func() float64 { return float64(n.session.Term()) })
	gauge("slots", "Slots in all.", func() float64 { return float64(n.cfg.Slots) })
	gauge("slots_free", "Slots that no worker uses.", func() float64 { return float64(n.supervisor.FreeSlots()) })
	gauge("workers", "Worker processes.", func() float64 { return float64(len(n.supervisor.Running())) })
	gauge("segment_cache_bytes", "Bytes of local copies of state files.", func() float64 { return float64(segments.Bytes()) })

	counter("worker_exits_total", "Worker processes that exited.", prometheus.Labels{"expected": "true"}, func() float64 {
		expected, _ := n.supervisor.Exits()
		return float64(expected)
	})
	counter("worker_exits_total", "Worker processes that exited.", prometheus.Labels{"expected": "false"}, func() float64 {
		_, unexpected := n.supervisor.Exits()
		return float64(unexpected)
	})
	counter("segment_upload_bytes_total", "Bytes of state files uploaded.", nil, func() float64 { return float64(segments.Stats().UploadedBytes) })
	counter("segment_download_bytes_total", "Bytes of state files downloaded.", nil, func() float64 { return float64(segments.Stats().DownloadedBytes) })
	counter("segment_verified_bytes_total", "Bytes of local copies read again in the background and found sound.", nil, func() float64 { return float64(segments.Stats().VerifiedBytes) })
	counter("segment_damaged_total", "Local copies found damaged in the background.", nil, func() float64 { return float64(segments.Stats().Damaged) })
	counter("segment_cache_hits_total", "Fetches answered by the local copy.", nil, func() float64 { return float64(segments.Stats().Hits) })
}
