package main

import (
	"math"
	"runtime/metrics"
	"time"
)

// gcPause is how often the garbage collector has stopped the process, by duration.
type gcPause struct {
	histogram *metrics.Float64Histogram
	most      time.Duration
}

func gcPauses() gcPause {
	sample := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(sample)
	return gcPause{histogram: sample[0].Value.Float64Histogram()}
}

// since returns p with the longest pause after before was taken, to the accuracy of the histogram.
func (p gcPause) since(before gcPause) gcPause {
	for i, n := range p.histogram.Counts {
		if n > before.histogram.Counts[i] {
			if upper := p.histogram.Buckets[i+1]; !math.IsInf(upper, 1) {
				p.most = time.Duration(upper * float64(time.Second)).Round(10 * time.Microsecond)
			}
		}
	}
	return p
}
