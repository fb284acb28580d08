// Package raftnode runs the Raft member of a JobManager: the replicated log, its files, its transport and who leads.
//
// Invariants:
//   - A proposal has exactly three outcomes: applied (its result is returned), [ErrNotLeader] (it is not in the log and never will
//     be) and [ErrUnknownOutcome] (it may be in the log). After the last one a successful [Node.Barrier] under the same leadership
//     decides: the state machine then shows whether the entry was applied.
//   - A node whose directory holds state never bootstraps. An empty one bootstraps a fixed member list only after every other
//     member has answered that it is empty too, so that wiped members cannot form a new cluster around one that has data.
//   - A log write that hangs is reported through [Node.Fatal], because a leader that cannot write must not keep heartbeating.
//
// All methods of Node are safe for concurrent use. Shutdown stops every goroutine of the package.
package raftnode
