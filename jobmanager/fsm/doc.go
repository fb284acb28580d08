// Package fsm is the replicated state machine of the JobManagers: jobs, their attempts and completed checkpoints, and the members'
// command levels.
//
// [State] is pure: the same commands in the same order give the same state on every replica, whatever the machine, the time or the
// number of snapshots in between. What must not race is decided in Apply, where the log has fixed the order: which checkpoint an
// attempt starts from, and whether a completion still counts.
//
// Records are copied on write. A [View] is a cheap, consistent snapshot of everything that never changes afterwards; its records
// must not be modified. A State is not safe for concurrent use; a [Machine], which makes one a hashicorp/raft FSM, is.
//
// Adding a command: give it the next number in weir.raft.v1, raise [Level], and add a case to Apply. The JobManager refuses to propose
// it before every member has reported the level; who wants something else until then asks for the level first. An old command that
// gets a new meaning raises the level as well, and its proposer asks for the level itself. A number that this program does not know
// makes Apply panic: skipping it would let replicas differ.
package fsm
