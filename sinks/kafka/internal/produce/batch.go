package produce

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Offsets of the fields of a record batch (message format v2), and the size of its header.
const (
	atLength     = 8
	atMagic      = 16
	atChecksum   = 17
	atAttributes = 21
	atLastDelta  = 23
	atBaseTime   = 27
	atLatestTime = 35
	atProducerID = 43
	atEpoch      = 51
	atSequence   = 53
	atCount      = 57
	HeaderSize   = 61

	transactional = 1 << 4
	magic         = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is a record batch in the making: the header, filled in by seal, and records.
type batch struct {
	buf     []byte
	records int32
	payload int   // bytes of keys, values and headers
	base    int64 // timestamp of the first record in milliseconds
	latest  int64
	// What a batch is written with, once it is numbered.
	who      identity
	sequence int32 // of the first record
	numbered bool
	sealed   bool
}

// reset makes b empty.
func (b *batch) reset() {
	if cap(b.buf) < HeaderSize {
		b.buf = make([]byte, HeaderSize, 16<<10)
	}
	*b = batch{buf: b.buf[:HeaderSize]}
}

// EncodedSize returns the size in bytes of a batch that holds only this record, uncompressed.
func EncodedSize(key, value []byte, headers []kgo.RecordHeader) int {
	body := (&batch{}).bodySize(key, value, headers, 0)
	return HeaderSize + varintSize(int64(body)) + body
}

// MaxOverhead returns the largest number of bytes by which the EncodedSize of a record exceeds its Payload.
func MaxOverhead(headers int) int {
	const aroundRecord, aroundHeader = HeaderSize + 6*binary.MaxVarintLen32 + 1, 2 * binary.MaxVarintLen32
	return aroundRecord + headers*aroundHeader
}

// Payload returns the size in bytes of a record's key, value and headers.
func Payload(key, value []byte, headers []kgo.RecordHeader) int {
	n := len(key) + len(value)
	for i := range headers {
		n += len(headers[i].Key) + len(headers[i].Value)
	}
	return n
}

// bodySize is the size of a record without the length before it.
func (b *batch) bodySize(key, value []byte, headers []kgo.RecordHeader, millis int64) int {
	n := 1 + varintSize(millis-b.base) + varintSize(int64(b.records)) + sizeOf(key) + sizeOf(value) + varintSize(int64(len(headers)))
	for i := range headers {
		n += varintSize(int64(len(headers[i].Key))) + len(headers[i].Key) + sizeOf(headers[i].Value)
	}
	return n
}

// append adds a record unless the batch would then be larger than limit; the first one always has room.
func (b *batch) append(key, value []byte, headers []kgo.RecordHeader, millis int64, limit int) bool {
	if b.records == 0 {
		b.base, b.latest = millis, millis
	}
	body := b.bodySize(key, value, headers, millis)
	if b.records > 0 && len(b.buf)+varintSize(int64(body))+body > limit {
		return false
	}
	buf := appendVarint(b.buf, int64(body))
	buf = append(buf, 0) // attributes
	buf = appendVarint(buf, millis-b.base)
	buf = appendVarint(buf, int64(b.records))
	buf = appendBytes(buf, key)
	buf = appendBytes(buf, value)
	payload := len(key) + len(value)
	buf = appendVarint(buf, int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		buf = appendVarint(buf, int64(len(h.Key)))
		buf = append(buf, h.Key...)
		buf = appendBytes(buf, h.Value)
		payload += len(h.Key) + len(h.Value)
	}
	b.buf = buf
	b.records++
	b.payload += payload
	b.latest = max(b.latest, millis)
	return true
}

// appendVarint appends a zigzag varint; most have one byte.
func appendVarint(to []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	if u < 0x80 {
		return append(to, byte(u))
	}
	return binary.AppendUvarint(to, u)
}

// identity is what a batch is written with.
type identity struct {
	id            int64
	epoch         int16
	transactional bool
}

// seal compresses the records in place and fills in the header, after which b does not change any more. b is numbered.
func (b *batch) seal(compress func(records []byte) ([]byte, kgo.CompressionCodecType)) {
	records, codec := compress(b.buf[HeaderSize:])
	b.buf = b.buf[:HeaderSize+len(records)]
	who, attributes := b.who, uint16(codec)
	if who.transactional {
		attributes |= transactional
	}
	h := b.buf
	be := binary.BigEndian
	clear(h[:HeaderSize])
	be.PutUint32(h[atLength:], uint32(len(h)-atLength-4))
	be.PutUint32(h[atLength+4:], ^uint32(0)) // the leader epoch, which the broker fills in
	h[atMagic] = magic
	be.PutUint16(h[atAttributes:], attributes)
	be.PutUint32(h[atLastDelta:], uint32(b.records-1))
	be.PutUint64(h[atBaseTime:], uint64(b.base))
	be.PutUint64(h[atLatestTime:], uint64(b.latest))
	be.PutUint64(h[atProducerID:], uint64(who.id))
	be.PutUint16(h[atEpoch:], uint16(who.epoch))
	be.PutUint32(h[atSequence:], uint32(b.sequence))
	be.PutUint32(h[atCount:], uint32(b.records))
	be.PutUint32(h[atChecksum:], crc32.Checksum(h[atAttributes:], castagnoli))
	b.sealed = true
}

// after returns the sequence number that follows n records; it wraps to 0.
func after(sequence, n int32) int32 { return int32((int64(sequence) + int64(n)) & 0x7fffffff) }

func appendBytes(to, v []byte) []byte {
	if v == nil {
		return append(to, 1) // the varint of -1
	}
	return append(appendVarint(to, int64(len(v))), v...)
}

func sizeOf(v []byte) int {
	if v == nil {
		return 1
	}
	return varintSize(int64(len(v))) + len(v)
}

// varintSize returns the size of a zigzag varint.
func varintSize(v int64) int {
	return (bits.Len64(uint64(v<<1)^uint64(v>>63)|1) + 6) / 7
}
