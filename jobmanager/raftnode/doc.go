// Package raftnode runs the Raft member of a JobManager: the replicated log, its files, its transport, who belongs to the cluster and who
// leads.
//
// Invariants:
//   - A proposal has exactly three outcomes: applied (its result is returned), [ErrNotLeader] (it is not in the log and never will
//     be) and [ErrUnknownOutcome] (it may be in the log). After the last one a successful [Node.Barrier] under the same leadership
//     decides: the state machine then shows whether the entry was applied.
//   - A node whose directory holds state never bootstraps. An empty one bootstraps a fixed member list only after every other
//     member has answered that it has nothing but that list either.
//   - An empty member takes no part before the leader has let it in as one without a vote: it may have been a voter that has forgotten
//     its votes. A vote is given to who has caught up. One change of the members at a time, and none that leaves no majority.
//   - A write that hangs is reported through [Node.Fatal], after the member has left the network, because a leader that cannot write
//     must not keep heartbeating. A write that finds no space waits for it; only a leader's fails, which ends its leadership.
//
// Beside Raft, members ask each other who they are on the same listener; see talk. All methods of Node are safe for concurrent use.
// Shutdown stops every goroutine of the package.
package raftnode
