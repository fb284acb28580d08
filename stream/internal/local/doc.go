// Package local runs a whole job in one process, with checkpoints and recovery, for development and for a first look.
//
// It drives one [worker.Worker] with the coordinator that the JobManager uses, package checkpoint. What the replicated log is to a
// cluster the file CURRENT in the state directory is here: it names the completed checkpoints, the attempts whose transactional ids
// may be open, and the ids that are used up. It is replaced atomically; a checkpoint is completed at the moment at which CURRENT
// names it, and only then are the tasks told.
//
// # State directory
//
//	LOCK      held while a process runs the job
//	CURRENT   the record: a line with its version and checksum, then protobuf JSON
//	storage/  state files and the metadata of checkpoints, by their names on checkpoint storage
//	work/     scratch space, emptied at each start
//
// The directory's random id stands for the cluster's in the names of transactions, so that two directories never meet at a broker.
//
// # Concurrency
//
// One goroutine, that of [Run], owns the record and the coordinator; a worker's events reach it through a queue.
package local
