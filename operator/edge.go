package operator

// EdgeType builds the two ends of an edge for its record type.
type EdgeType interface {
	// NewWriter returns the producing end of one subtask.
	NewWriter(cfg WriterConfig) Writer
	// NewReader returns the consuming end, which passes records to in, a Collector[T].
	NewReader(in any) (Reader, error)
}

// WriterConfig describes the channels of a producing end.
type WriterConfig struct {
	Subtask        int // of the producer
	MaxParallelism int
	// Channels has one element per consumer subtask; for a forward edge only the producer's own.
	Channels []Channel
}

// Writer spreads records over channels in batches.
type Writer interface {
	// Collector returns the Collector[T] that takes the records.
	Collector() any
	// Flush sends every batch begun. Barriers, watermarks and the end of input follow on the channels themselves.
	Flush() error
}

// Channel moves batches from one task to another. Send takes ownership of the batch and waits while the consumer is behind.
type Channel interface {
	Send(b Batch) error
	// BatchRecords returns how many records the next batch should hold at most, at least 1: few for a slow consumer, since barriers
	// wait until it has worked off the batches before them.
	BatchRecords() int
}

// Batch is a run of records of one type with their timestamps.
type Batch interface {
	Len() int
	// AppendEncoded appends the wire form of the records from number from on to dst: as many as MaxEncodedBytes take, and one that
	// exceeds that. The record with number to, if there is one, is the first of the next call. A record of more than MaxRecordBytes is
	// an error that wraps ErrRecordTooLarge.
	AppendEncoded(dst []byte, from int) (out []byte, to int, err error)
	// Release returns the batch for reuse; only the consumer of an unencoded batch or the encoder calls it.
	Release()
}

// Reader passes batches to an operator.
type Reader interface {
	// Batch delivers and releases a batch of a producer in the same process.
	Batch(b Batch) error
	// Encoded delivers a batch in wire form. Nothing keeps a reference to data.
	Encoded(data []byte) error
}
