// Package taskmanager runs the worker processes of a cluster's jobs on one machine.
//
// [Run] holds the parts together: a session with the leading JobManager (package session), the worker processes (package supervisor) and the
// files between them and checkpoint storage (package segmentstore). The TaskManager decides nothing about jobs. Workers go on while no
// leader can be reached; they end when the TaskManager does.
//
// The data directory belongs to one process at a time and keeps the TaskManager's id; each process adds a random incarnation of its
// own, so that the leader never takes a restarted TaskManager for the one that ran its workers.
package taskmanager
