// Package ingest drives a source: it turns a [sources.Source] into operator instances.
//
// The state of an instance is its positions and the largest timestamp of each split, as operator state keyed by split, so that both
// follow a split to whatever subtask reads it after a change of parallelism. The largest timestamps are state because a watermark
// that went back after a restore would let a window that had fired fire again for late records.
//
// Fetch runs on a goroutine of the task's own; everything else on the task's goroutine.
package ingest
