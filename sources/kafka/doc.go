// Package kafkasource reads Kafka topics over connections of franz-go, whose consumer it does not use (internal/fetch). Partitions are assigned
// by a fixed function, without consumer groups, and the positions live in the checkpoint.
//
// # Positions
//
// A position is the next offset to read, past control records, filed under topic id and partition: a topic that was deleted and
// created again under its name is an error, never read on from a stale offset. It has the epoch of the leader that wrote what is before it:
// the leader of today is asked how far that epoch goes, so that a partition that was cut off is an error, however long it is again by now.
// Isolation is read_committed.
//
// # Start
//
// A job that starts from nothing resolves its start rule to numbers when it opens. Unless that is "earliest", it emits nothing until a
// first checkpoint that holds these numbers is complete: else a crash before it would resolve "latest" again, later, and skip what was
// written in between. A partition that appears afterwards is read from its beginning, whatever the rule.
//
// # Memory
//
// What is fetched and not yet emitted is bounded by MemoryBytes for each subtask, whatever the number of partitions, counted after
// decompression: half of it is for answers as they arrived, and batches are decompressed a mebibyte ahead of what is emitted. A batch larger
// than the bound arrives all the same.
//
// # Watermarks
//
// A silent partition is reported as caught up as of the time when a fetch was sent whose answer says that nothing is left: elapsed time proves
// nothing when a fetch is slow. While nothing is fetched, as under back-pressure, end offsets are asked for beside it. An open transaction at
// the end of a partition keeps it from being caught up.
//
// # Concurrency
//
// Goroutines of internal/fetch ask brokers; Fetch takes their answers and decompresses them on the task's fetching goroutine; one of the reader's
// own asks for end offsets and new partitions and commits group offsets; Emit decodes records, and it and Positions belong to the task's
// goroutine. They meet in mutexes held briefly.
package kafkasource
