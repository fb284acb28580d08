// Package control connects a worker process to its TaskManager over a unix socket: commands come in, events go out, and state files
// are stored and fetched by the TaskManager, so that the job's process holds no credentials.
//
// The socket is also the process's lifeline. When it closes the TaskManager is gone, and [Run] returns at once without closing
// anything: its caller ends the process, which is the only way to stop user code in time.
package control
