// Package registry keeps the sessions of TaskManagers with the leading JobManager.
//
// A [Registry] lives for one leadership. A TaskManager registers with its incarnation, is checked (protocol, platform, cluster,
// checkpoint storage), and is then known to the [Handler]. When its session breaks the handler is told at once; the same incarnation
// may come back within the grace period, else the TaskManager is lost. A silent one is lost after the heartbeat timeout. A new
// incarnation means that the former one and all of its workers are dead, because a TaskManager kills what it finds at start; it is
// refused while the former one gives signs of life.
//
// Invariants:
//   - every message carries the leader's term; a session whose other side has seen a higher term ends;
//   - calls of the handler about one TaskManager are made one at a time and in order, whatever sessions they come from;
//   - Send never blocks: what a session cannot take in ends the session.
package registry
