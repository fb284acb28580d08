// Package exchange moves batches, barriers and watermarks from task to task.
//
// A channel connects one producer task to one consumer task over one edge. The producer holds its [Sender], the consumer reads all
// of its channels from one [Inbox]. Tasks of one worker are joined by a [Local] sender, which hands batches over without encoding
// them. Tasks of different workers are joined by a [Remote] sender: a gRPC stream of its own to the consumer's [Server]. Both keep
// the order of what is sent, and both bound what is on its way: a producer waits in Send until the consumer has worked off enough.
//
// # Wire format
//
// Messages are raw bytes (content-subtype "weir-raw"). The first byte is the kind:
//
//	1 data       4 bytes big-endian number of records, then the batch in its wire form
//	2 barrier    8 bytes checkpoint, 1 byte flags (1 full, 2 stop)
//	3 watermark  8 bytes milliseconds since the epoch
//	4 idle
//	5 active
//	6 end        no record follows; barriers do
//	7 part       8 bytes size of the whole frame, then a piece of it; pieces follow one another until the frame is whole
//
// The other way flow counts of bytes that the consumer has worked off, 8 bytes each. The metadata of the call (weir-job,
// weir-attempt, weir-token, weir-edge-bin, weir-producer, weir-consumer) names the channel; a connection with another job, attempt or
// token is refused, so that a worker left over from a former attempt can deliver nothing.
//
// Where the cluster has TLS, so have these connections, with a key that both ends derive from the token; the token itself is not sent
// then.
//
// # Concurrency
//
// A sender is used by its producer's goroutine, an inbox by its consumer's; Close and Fail may be called from any goroutine. The
// server and the dialer own the goroutines of their streams and wait for them in Close.
package exchange
