// Package gcpace lets the garbage collector run less often while the heap is small.
//
// What the collector does is in proportion to what is alive, and how often it does it to the garbage that may lie about. Go's default
// allows as much garbage as there is alive, which is little for a process that lives on buffers and passes on hundreds of megabytes a
// second. Here a process may have some garbage whatever is alive, but no more than four times that; with a large heap the default holds.
package gcpace

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"

	"github.com/weir-stream/weir/internal/sysmem"
)

const (
	leastPercent, mostPercent = 100, 400
	// mostSlack is how many bytes of garbage are allowed at most beyond Go's default. A machine with little memory allows less: it may
	// have dozens of such processes.
	mostSlack     = 128 << 20
	partOfMachine = 64
)

// percent returns the garbage allowed in percent of what is alive.
func percent(live, slack uint64) int {
	return int(min(max(slack*100/max(live, 1), leastPercent), mostPercent))
}

// pacer sets the percentage after each cycle of the collector.
type pacer struct {
	slack uint64

	mu      sync.Mutex
	stopped bool
	set     int
}

// Start begins to set the collector's pace, unless the environment does with GOGC or GOMEMLIMIT. stop leaves it as it was.
func Start() (stop func()) {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	p := &pacer{slack: uint64(min(mostSlack, sysmem.Total()/partOfMachine)), set: mostPercent}
	before := debug.SetGCPercent(mostPercent)
	p.watch()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stopped = true
		debug.SetGCPercent(before)
	}
}

// cycle is an object that nothing refers to: its finalizer runs after the next cycle.
type cycle struct{ _ [16]byte }

func (p *pacer) watch() {
	runtime.SetFinalizer(&cycle{}, func(*cycle) {
		if p.adjust() {
			p.watch()
		}
	})
}

// adjust sets the percentage for what is alive, and reports whether that is to go on. Setting it stops the world for some microseconds,
// so small changes are left.
func (p *pacer) adjust() bool {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return false
	}
	next := percent(sample[0].Value.Uint64(), p.slack)
	if next > p.set+p.set/8 || next < p.set-p.set/8 {
		p.set = next
		debug.SetGCPercent(next)
	}
	return true
}
