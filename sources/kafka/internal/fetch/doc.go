// Package fetch reads partitions of Kafka topics over the connections of a franz-go client, batch by batch, without an object per record.
//
// Each broker that leads a partition of ours has one request under way, which asks for all of them; the next one goes when its answer was
// taken and there is memory. An answer's batches are checked when they arrive; what aborted transactions wrote, and control batches, are dropped
// there, and move the partition's position only. Batches are decompressed by whoever took them, and their records are decoded one by one, where
// they lie.
//
// Invariants: a partition's answers come in the order of offsets, each where the former one ended; a partition is asked for by one request at a
// time, whoever leads it; no byte of an answer is ever written again; an answer counts as memory until it is given back; after an error about a
// partition nothing of it comes until it is moved; after a change of leader it is read on only when the new one has what was read.
//
// What is told about the end of a partition holds as of the time when the request was sent. A broker that keeps a session leaves out of an answer
// what has not changed.
//
// Concurrency: the methods may be called from any goroutine. A goroutine for each broker asks and takes answers apart; one more asks for
// leaders. They meet in a mutex that nobody holds while waiting for a broker or while looking at records.
package fetch
