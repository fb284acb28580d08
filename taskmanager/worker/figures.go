package worker

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
)

const (
	// quietLooks is how many looks at figures that do not change pass from one report to the next.
	quietLooks = 10
	// passingWait is below what a wait for another system counts as activity: an idle source asks its system from time to time.
	passingWait = time.Second
)

// figures decides which looks at the tasks' figures are reported: all in which something has changed or goes on, and of the others few. The
// zero value has reported nothing.
type figures struct {
	// told is the last report, without what changes by itself; nil to have the next look reported.
	told []*jobv1.TaskStatistics
	// rest is how many looks without a change are still to pass without a report.
	rest int
}

// changed has the next look reported.
func (f *figures) changed() { f.told = nil }

// look returns what is to be reported, nil for nothing.
func (f *figures) look(tasks []*jobv1.TaskStatistics) *workerv1.Statistics {
	now, still := settled(tasks)
	same := f.told != nil && slices.EqualFunc(f.told, now, func(a, b *jobv1.TaskStatistics) bool { return proto.Equal(a, b) })
	f.told = now
	switch {
	case !same || !still:
		f.rest = 0
		return &workerv1.Statistics{Tasks: tasks}
	case f.rest > 0:
		f.rest--
		return nil
	}
	f.rest = quietLooks - 1
	return &workerv1.Statistics{Tasks: tasks, QuietMs: uint64((quietLooks * statisticsEvery).Milliseconds())}
}

// settled returns the figures without the durations in them, and whether nothing goes on that durations tell of: who reads a report adds
// the time since it came.
func settled(tasks []*jobv1.TaskStatistics) (out []*jobv1.TaskStatistics, still bool) {
	still = true
	for _, t := range tasks {
		t = proto.CloneOf(t)
		out = append(out, t)
		a := t.GetActivity()
		still = still && t.GetOldestTransactionMs() == 0
		if a == nil {
			continue
		}
		a.Waits = slices.DeleteFunc(a.Waits, func(w *jobv1.TaskWait) bool { return w.GetForMs() < uint64(passingWait.Milliseconds()) })
		still = still && a.GetDoing() == "" && len(a.GetWaits()) == 0 && a.GetBlockedOn() == "" && a.GetQueued() == 0 && !inProgress(a.GetStage())
		a.ForMs, a.StageMs = 0, 0
		for _, s := range a.GetSplits() {
			if s.QuietMs != nil {
				s.QuietMs = new(uint64)
			}
		}
	}
	return out, still
}

func inProgress(s jobv1.CheckpointStage) bool {
	return s != jobv1.CheckpointStage_CHECKPOINT_STAGE_UNSPECIFIED && s != jobv1.CheckpointStage_CHECKPOINT_STAGE_DONE
}
