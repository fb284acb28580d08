package worker

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

// restored measures the parts of the worker's start and tells them.
type restored struct {
	report reports

	mu      sync.Mutex
	so      workerv1.Restored
	since   time.Time // when the part under way began
	records sync.Once
}

// begin starts the first part.
func (r *restored) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = time.Now()
}

// ends notes the end of a part; the next one begins.
func (r *restored) ends(part func(*workerv1.Restored, *uint64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	part(&r.so, proto.Uint64(uint64(now.Sub(r.since).Microseconds())))
	r.since = now
}

// tell sends what is known so far.
func (r *restored) tell() {
	r.mu.Lock()
	so := proto.CloneOf(&r.so)
	r.mu.Unlock()
	r.report.send(&workerv1.Event{Event: &workerv1.Event_Restored{Restored: so}})
}

// firstRecord is called by each task with its first record.
func (r *restored) firstRecord() {
	r.records.Do(func() {
		r.ends(func(so *workerv1.Restored, us *uint64) { so.FirstRecordUs = us })
		r.tell()
	})
}

func planned(so *workerv1.Restored, us *uint64)   { so.PlanUs = us }
func pointRead(so *workerv1.Restored, us *uint64) { so.ReadUs = us }
func opened(so *workerv1.Restored, us *uint64)    { so.OpenUs = us }
func fenced(so *workerv1.Restored, us *uint64)    { so.FenceUs = us }
func connected(so *workerv1.Restored, us *uint64) { so.ConnectUs = us }
