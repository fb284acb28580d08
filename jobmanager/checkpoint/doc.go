// Package checkpoint is the coordinator of one job attempt's checkpoints: when one is triggered, when it is complete, when it has
// failed, who has to be told, and when a commit is acknowledged everywhere.
//
// The core is pure. A driver feeds a [Coordinator] with events and the time, and carries out the effects it returns, in order. It
// does no I/O, knows no clock, starts no goroutine and logs nothing, so that the JobManager and a local run can share it.
//
// Invariants:
//   - at most one checkpoint is between its trigger and the decision about it;
//   - ids strictly grow, and only reserved ids are used;
//   - [Notify] for n is returned only after the log answered that n is committed; while the outcome is unknown, n is neither
//     notified nor discarded, and nothing else is triggered;
//   - a checkpoint that was aborted, timed out or declined is never proposed, whatever arrives later;
//   - an idle job is left alone: nothing is triggered while nothing changed since the last completed checkpoint.
//
// A Coordinator is not safe for concurrent use: its driver owns it.
package checkpoint
