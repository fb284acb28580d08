package kafkasink

import "github.com/weir-stream/weir/sinks/kafka/internal/produce"

// encodedSize returns the size in bytes of a batch that holds only this record, uncompressed: what a broker compares to
// max.message.bytes when nothing is compressed.
func encodedSize(r *Record) int { return produce.EncodedSize(r.Key, r.Value, r.Headers) }

// surelyFits reports whether a record is so far below limit that its encoded size need not be worked out.
func surelyFits(r *Record, limit int) bool {
	return r.Size()+produce.MaxOverhead(len(r.Headers)) <= limit
}

// Size returns the size in bytes of key, value and headers.
func (r *Record) Size() int { return produce.Payload(r.Key, r.Value, r.Headers) }
