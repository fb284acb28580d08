// Package worker runs the operators of one attempt of a job inside one process.
//
// A [Worker] is told what to do by commands and answers by events, the same in a cluster, where package control connects it to a
// TaskManager, and in a local run. Its life: Prepare compiles the job, reads the restore point, builds and opens the worker's tasks
// and commits the restored transactions. Start fences what former attempts left, connects the channels and runs the tasks. Then
// come checkpoints, until Finish, Cancel or a failure ends everything. A worker that was prepared to settle only opens nothing but
// transactional sinks and never runs a record.
//
// # Concurrency
//
// One goroutine carries out the commands in order. Each running task has a goroutine (see package task) that the worker waits for;
// a task that does not stop within the cancel deadline is given up and named, since nothing but the end of the process stops it.
package worker
