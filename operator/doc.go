// Package operator is the contract between an operator and the task that runs it.
//
// A task owns a chain of operator instances and calls them on one goroutine, so no instance needs a lock for its state. Records
// pass along the chain by direct calls of [Collector]; between tasks they travel in batches through a [Writer] and a [Reader]. The
// record's type is known to the operator's code only: the task handles instances, batches and collectors without their type.
//
// The order of calls on an instance: Open; for a [Committer] RecoverCommit, then, when every task of the attempt has prepared,
// RecoverAbort; then records, Watermark, timers, Snapshot, Commit and notices in any order; EndInput at most once; Close.
//
// Sub-packages hold the operators themselves.
package operator
