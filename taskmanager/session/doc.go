// Package session keeps a TaskManager's conversation with the leading JobManager alive.
//
// A [Session] goes round all known JobManagers, follows the answer of a follower to the leader, registers, and reconnects with
// back-off for ever. It remembers the highest leader term it has met and hears nothing below it, so that a former leader that does not
// know its fate yet cannot command anything.
//
// Reports are sent in the order in which they were made. While there is no leader, acknowledgements and statistics are dropped: the
// checkpoint they belong to is lost with its leader. Everything else waits, and what was sent shortly before a connection broke is
// sent again after the next registration, since nobody knows whether it arrived; leaders take repeated reports for one.
package session
