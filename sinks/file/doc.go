// Package filesink writes records to files, exactly-once: a file is seen when it is finished and the checkpoint that covers it is
// completed, never before and never in part.
//
// A file is in progress while records come, pending from the barrier that ends it until its checkpoint is completed, and then finished:
// it gets its name in the tree that readers see. In progress and pending it is below .weir. Every barrier ends the files of its
// interval; docs/adr/0008-file-sink.md tells why. Files are kept in a local directory ([Directory]) or wherever a [Store] keeps them;
// package blobstore has object stores. Formats are [JSONLines], and Parquet in package parquetfile.
//
// Invariants: names are made of sink, attempt, subtask, sequence and part, so no two files ever have the same. A transaction's files are
// all durable before its barrier is acknowledged. Below .weir, committed/ holds for each writer the sequence up to which all its
// transactions are committed, so that finished files may be taken away at any time; it never rises to one that is lost. Those of
// former writers are gathered in one file of each subtask, a line each, and kept as long as a savepoint may list their transactions. The fence holds the newest attempt; a writer that
// finds a newer one than its own removes what it just made.
//
// Concurrency: the task's goroutine writes; commits run beside it.
package filesink
