package explain

import (
	"fmt"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
)

// watermark names the split that holds event time back.
func (f Facts) watermark() Finding {
	var task *Task
	var split *jobv1.SplitProgress
	var highest *int64
	for i := range f.Tasks {
		t := &f.Tasks[i]
		a := t.Statistics.GetActivity()
		if !a.GetEventTime() {
			continue
		}
		if h := a.HighestWatermarkMs; h != nil && (highest == nil || *h > *highest) {
			highest = h
		}
		if len(a.GetSplits()) == 0 {
			continue
		}
		if s := a.GetSplits()[0]; split == nil || before(s, split) {
			task, split = t, s
		}
	}
	if split == nil || highest == nil {
		return Finding{} // no event time, or none has come at all
	}
	if split.WatermarkMs != nil && time.Duration(*highest-split.GetWatermarkMs())*time.Millisecond < spread {
		return Finding{}
	}
	x := Finding{Kind: KindWatermark}
	a := task.Statistics.GetActivity()
	where := fmt.Sprintf("%s (read by %s)", split.GetName(), task.where())
	switch {
	case split.QuietMs != nil:
		quiet := task.passed(f.Now, split.GetQuietMs())
		x.Since, x.Blocking = f.Now.Add(-quiet), quiet >= slowWait
		x.short = fmt.Sprintf("event time, held back by %s, silent for %s", split.GetName(), span(quiet))
		x.Text = fmt.Sprintf("Event time is held back by %s: it has held no new record for %s%s.", where, span(quiet), f.behind(split, highest))
		x.Text += " Windows do not fire until it has one, or is left out."
		if timeout := time.Duration(a.GetIdleTimeoutMs()) * time.Millisecond; timeout > 0 {
			x.Text += fmt.Sprintf(" It is left out once it has been silent for %s%s.", span(timeout), left(timeout-quiet))
			x.Advice = "Nothing, if that is soon enough; else a shorter WithIdleTimeout, or records in every partition."
		} else {
			x.Text += " It is never left out, since the source is used WithoutIdleness."
			x.Advice = "Write to it, or let the source leave silent partitions out with WithIdleTimeout."
		}
	case split.GetLagRecords() > 0:
		x.Text = fmt.Sprintf("Event time is held back by %s, of which %s records are still to read%s. Windows fire as it catches up.",
			where, rate(float64(split.GetLagRecords())), f.behind(split, highest))
	default:
		x.Text = fmt.Sprintf("Event time is held back by %s: what it holds is not known at the moment%s.", where, f.behind(split, highest))
	}
	return x
}

func left(d time.Duration) string {
	if d <= 0 {
		return ", which is now"
	}
	return ", in " + span(d)
}

func before(a, b *jobv1.SplitProgress) bool {
	switch {
	case a.WatermarkMs == nil:
		return b.WatermarkMs != nil
	case b.WatermarkMs == nil:
		return false
	}
	return a.GetWatermarkMs() < b.GetWatermarkMs()
}

func (f Facts) behind(s *jobv1.SplitProgress, highest *int64) string {
	if s.WatermarkMs == nil {
		return fmt.Sprintf(", and none at all before, while others are at %s", time.UnixMilli(*highest).UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf(" and its event time, %s, is %s behind the furthest one", time.UnixMilli(s.GetWatermarkMs()).UTC().Format(time.RFC3339),
		span(time.Duration(*highest-s.GetWatermarkMs())*time.Millisecond))
}
