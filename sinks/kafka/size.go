package kafkasink

import "math/bits"

// batchOverhead is the size in bytes of the header of a record batch (message format v2).
const batchOverhead = 61

// encodedSize returns the size in bytes of a batch that holds only this record, uncompressed: what a broker compares to
// max.message.bytes when nothing is compressed.
func encodedSize(r *Record) int {
	body := 1 + 1 + 1 // attributes, timestamp delta and offset delta of a first record
	body += bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for _, h := range r.Headers {
		body += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return batchOverhead + varintSize(int64(body)) + body
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

// varintSize returns the size of a zigzag varint.
func varintSize(v int64) int {
	zigzag := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
