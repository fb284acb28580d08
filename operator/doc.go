// Package operator is the contract between an operator and the task that runs it.
//
// A task owns a chain of operator instances and calls them on one goroutine, so no instance needs a lock for its state. Records
// pass along the chain by direct calls of [Collector]; between tasks they travel in batches through a [Writer] and a [Reader]. The
// record's type is known to the operator's code only: the task handles instances, batches and collectors without their type.
//
// The order of calls on an instance: Open; for a [Committer] RecoverCommit, then, when every task of the attempt has prepared,
// RecoverAbort; then records, Watermark, timers, Snapshot, Commit and notices in any order; EndInput at most once; Close.
//
// [NewEdge] and [NewHashEdge] are the edges of a record type. Their writers gather batches, one per channel, that are full at
// [MaxBatchRecords] or about [MaxBatchBytes]; a batch goes to a task of the same process as it is, to another in its wire form. A
// writer belongs to its task's goroutine; batches are handed over, and their pools are safe for concurrent use.
//
// Sub-packages hold the operators themselves: ingest (sources), transform, process and windowing; watermark has the pure part of event
// time.
package operator
