// Package windowing holds the operators that gather the records of a key in windows of time.
//
// Time is cut into consecutive panes, and a window consists of whole panes: for tumbling windows the two are the same, for sliding
// windows a pane is a slice as long as the greatest common divisor of size and slide. A record is added to the accumulator of its
// key in one pane, whatever the number of windows it belongs to; a window that fires merges its panes. Panes are dropped as a whole
// when their last window, and the allowed lateness after it, is over, so no timer exists for a key.
//
// A window fires when the watermark reaches its last millisecond, End-1, which is also the timestamp of its results. Which windows
// have fired follows from the watermark alone, and the watermark is part of the snapshot: after a restore nothing fires again. A
// record that comes after its window fired, but within the allowed lateness, makes the window fire again at once for its key; a
// later one is counted as late and dropped.
//
// In processing time the clock takes the place of the watermark and of timestamps, and how far it had come is part of the snapshot. At
// the end of input all windows fire.
//
// The assigners and the trigger are pure; the instance joins them with the state.
package windowing
