package barrier

import "github.com/weir-stream/weir/operator"

// Watermarks combines the watermarks of a task's channels: the lowest of the active ones. An idle channel holds nothing back. A
// channel that has ended neither holds back nor pushes forward, until all have. When all open channels are idle nothing holds back any
// more, so the highest of them counts: what the last active one had reached does not depend on which fell idle first. The result never
// goes back.
type Watermarks struct {
	marks []int64
	idle  []bool
	// out and outIdle are the combined watermark and idleness.
	out     int64
	outIdle bool
}

// NewWatermarks returns the combination for channels numbered from 0. All are active and without a watermark.
func NewWatermarks(channels int) *Watermarks {
	w := &Watermarks{marks: make([]int64, channels), idle: make([]bool, channels), out: operator.MinWatermark}
	for i := range w.marks {
		w.marks[i] = operator.MinWatermark
	}
	return w
}

// Advance takes a watermark that came on channel ch; operator.MaxWatermark ends the channel. It reports whether the combination
// changed.
func (w *Watermarks) Advance(ch int, wm int64) bool {
	if wm <= w.marks[ch] {
		return false
	}
	w.marks[ch] = wm
	return w.combine()
}

// SetIdle tells that channel ch has become idle or active. It reports whether the combination changed.
func (w *Watermarks) SetIdle(ch int, idle bool) bool {
	if w.idle[ch] == idle {
		return false
	}
	w.idle[ch] = idle
	return w.combine()
}

// Combined returns the combined watermark, and whether all channels that have not ended are idle.
func (w *Watermarks) Combined() (wm int64, idle bool) { return w.out, w.outIdle }

func (w *Watermarks) combine() bool {
	lowest, highest := operator.MaxWatermark, operator.MinWatermark
	active, open := 0, 0
	for ch, wm := range w.marks {
		if wm == operator.MaxWatermark {
			continue
		}
		open++
		highest = max(highest, wm)
		if w.idle[ch] {
			continue
		}
		active++
		lowest = min(lowest, wm)
	}
	before, beforeIdle := w.out, w.outIdle
	w.outIdle = open > 0 && active == 0
	if w.outIdle {
		w.out = max(w.out, highest)
	} else {
		w.out = max(w.out, lowest)
	}
	return w.out != before || w.outIdle != beforeIdle
}
