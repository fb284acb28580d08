// Package task runs one subtask of a vertex: a chain of operators on one goroutine that owns all of their state.
//
// The goroutine reads its input channels in turn, or emits what a source has fetched, and between batches does what others have put
// into its mailbox: commands, results of commits, work of the operators' own helpers. Watermarks go down the chain after a batch;
// they and the batches begun leave for the next tasks when the input is momentarily empty, when a batch is full, or after a short
// delay.
//
// # Checkpoints
//
// A source takes a checkpoint when it is told to, any other task when its barriers are aligned. The task sends what it has begun,
// takes the synchronous part of each operator's snapshot and passes the barrier on before it touches the next record; the rest of
// the snapshots runs on another goroutine, checkpoint by checkpoint, and ends in an acknowledgement. A snapshot that could not be
// stored declines the checkpoint; anything else that goes wrong fails the task.
//
// # End of input
//
// A task whose input has ended delivers the maximal watermark and the end to one operator after the other and marks the end on its
// outputs. It lives on and passes barriers until it is told to stop, since its last output is committed only by a checkpoint after
// the end. No timer fires after the end.
package task
