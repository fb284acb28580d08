// Package barrier decides what a task with several input channels does about checkpoint barriers and watermarks.
//
// It is pure: events go in, effects come out, and nothing here reads a channel or the clock. An [Aligner] makes checkpoints exact: a
// channel that has delivered the barrier of checkpoint n is blocked until all others have too, so that the snapshot holds the
// effect of exactly the records before the barriers. [Watermarks] combines the watermarks of the channels.
//
// The types are not safe for concurrent use; the task's goroutine owns them.
package barrier
