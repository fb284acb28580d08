// Package kafkasink writes records to Kafka: exactly-once inside transactions that are committed when a checkpoint completes,
// at-least-once with a flush at each barrier, or with no guarantee.
//
// A subtask has a small pool of transactional ids, and of clients, that it uses in turn; docs/design/exactly-once.md tells the
// protocol and its reasons. What decides lives in pure parts: the pool of slots, the table of what EndTxn's answers mean, and what
// control markers prove. Two clients can write: one that encodes batches itself, and librdkafka through package confluent; a transaction that is in doubt is
// always finished by a raw EndTxn request through franz-go.
//
// Invariants: a committable names its transaction by producer id and epoch and is never empty. A client that met an error is never
// asked again. An id is reused only after a completed checkpoint without its transaction. Every wait for the broker has a deadline.
//
// Concurrency: the task's goroutine writes and prepares; another commits, with a different client; ids are initialised in the
// background.
package kafkasink
