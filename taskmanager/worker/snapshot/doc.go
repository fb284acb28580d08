// Package snapshot turns the snapshots of a task's operators into the handle that travels to the JobManager, and the metadata file
// of a restore point back into the snapshots that each new operator instance starts from.
//
// A handle holds the task's snapshot by value while it is small; a larger one is written to checkpoint storage and named. State
// itself never travels: the snapshots name files that are durable already.
package snapshot
