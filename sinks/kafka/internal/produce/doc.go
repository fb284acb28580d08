// Package produce writes records to Kafka in batches that it encodes itself, with one producer id at a time, over the connections of a
// franz-go client.
//
// A record is encoded as it is sent, straight into the open batch of its partition; nothing is kept of it but its bytes. A batch leaves
// when it is full, when it has lingered, or when a flush or a push asks for it, and each broker has one request under way, which carries a batch of
// each partition that it leads. So the batches of a partition have their order without further care, and one that was not answered, or
// whose leader moved, goes again with the sequence number that it had: the broker tells a repetition by it.
//
// Invariants: a batch that was sent is never changed; the next one of its partition waits for its outcome; after an error that is none of
// moment every record fails, and the writer is of no use any more.
//
// Concurrency: all methods may be called from one goroutine at a time, except Close. A goroutine of the writer's own sends; it and the
// one that waits for an answer meet the caller in a mutex that nobody holds while waiting for a broker.
package produce
