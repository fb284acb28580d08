// Package jobmanager is the server of a JobManager: it wires the Raft member, the state machine, the sessions of TaskManagers, the
// drivers of running jobs and the RPC services, and runs them in order.
//
// Whatever only a leader does lives in one term object: it is made when the member has become the leader and has applied everything
// before, and it ends, with all of its goroutines, when the leadership does.
package jobmanager
