// Package postgressink writes records to a table of PostgreSQL: exactly-once, at-least-once with a flush at each barrier, or with no
// guarantee.
//
// Exactly-once has two modes. Prepared: rows are written in a transaction that is made ready by PREPARE TRANSACTION at the barrier and
// ended by COMMIT PREPARED when the checkpoint is completed. Staged: rows are written to a staging table and committed there at the
// barrier; when the checkpoint is completed one transaction moves them to the table. docs/adr/0009-postgres-sink.md has the reasons.
//
// Two tables of bookkeeping make every answer certain. weir.committed has a row for each committed transaction, written in that very
// transaction: "no such prepared transaction" alone could mean committed or rolled back. weir.writers has a row for each subtask of each
// attempt. A transaction holds a key-share lock on its writer's row until it is over, so who gets that row for update knows that no
// transaction of the writer is left; and a row that is marked as fenced lets none begin.
//
// Invariants: a transaction is named by cluster, job, sink, attempt, subtask and sequence and is never empty. A writer's
// transactions are committed in order; when one has failed, those behind it are tried only where rows are inserted, as with Upsert the row
// that is moved last stays. writers.settled_through is a sequence up to which all are committed.
//
// Concurrency: the task's goroutine writes and prepares on one connection; commits run beside it on another. Every wait for the server
// has a deadline.
package postgressink
