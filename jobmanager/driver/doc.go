// Package driver runs the jobs of a cluster on the leading JobManager: one driver per live job deploys its attempts, feeds its
// checkpoint coordinator, handles failures, and settles the job when it ends.
//
// A [Manager] lives for one leadership. A driver is one goroutine with a mailbox: events of TaskManagers, requests of users and results
// of slow work (storage) are handled one at a time. The decisions are in the pure cores (checkpoint, scheduler, restart) and in the
// state machine; the driver carries them out.
//
// Invariants:
//   - "checkpoint n is complete" is told to a worker only after the log has accepted n. While the outcome of that entry is unknown
//     the driver finds out by a barrier and does nothing else.
//   - A driver whose leadership has ended sends nothing more.
//   - Start is sent only after the log has accepted that the attempt goes, which is after every worker has prepared.
//   - A job's result is recorded only after settling: its workers are stopped and, with transactional sinks, what is completed is
//     committed and everything else fenced, or the settling deadline has passed and the record says what is open.
//   - A file is deleted only after the entry that dropped its last reference is in the log.
package driver
