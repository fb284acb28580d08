package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Offsets of the fields of a record batch (message format v2), and the size of its header.
const (
	atLength      = 8
	atLeaderEpoch = 12
	atMagic       = 16
	atChecksum    = 17
	atAttributes  = 21
	atLastDelta   = 23
	atBaseTime    = 27
	atLatestTime  = 35
	atProducerID  = 43
	atCount       = 57
	headerSize    = 61

	compression   = 0x07
	logAppendTime = 1 << 3
	transactional = 1 << 4
	control       = 1 << 5
	magic         = 2
)

var (
	// ErrFormat is about a batch of a format that is not read.
	ErrFormat = errors.New("unknown format of a record batch")
	// ErrMalformed is about a batch that is broken although its checksum is right, so that asking for it again helps nobody.
	ErrMalformed = errors.New("malformed record batch")
	// ErrCorrupt is about a batch that arrived damaged.
	ErrCorrupt = errors.New("damaged record batch")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is a record of a batch. Its bytes are those of the batch and are never used again.
type Record struct {
	// Key and Value are null when nil, which differs from empty.
	Key, Value []byte
	Headers    []kgo.RecordHeader
	Offset     int64
	Millis     int64 // timestamp
}

// Batch is a record batch whose checksum is right. Next takes its records out of it.
type Batch struct {
	// Last is the last offset of the batch, which need not be a record's: compaction removes records and keeps it.
	Last int64
	// Epoch is the epoch of the leader that wrote it.
	Epoch int32

	records []byte // those to come; compressed until Open
	left    int32  // records to come
	base    int64  // offset
	next    int64  // the least that the next record's offset may be
	// time is the timestamp that the records' own are relative to, or that of all of them.
	time    int64
	oneTime bool
	codec   kgo.CompressionCodecType
	err     error
}

// header is what a batch is before its records are looked at.
type header struct {
	base, last  int64
	leaderEpoch int32
	attributes  uint16
	producer    int64
}

// cut takes the first batch off bytes of an answer. Without an error, a nil frame means that no whole batch is left.
func cut(in []byte) (frame, rest []byte, err error) {
	if len(in) <= atMagic {
		return nil, nil, nil
	}
	base := int64(binary.BigEndian.Uint64(in))
	if m := in[atMagic]; m != magic {
		if m < magic {
			return nil, nil, fmt.Errorf("%w: the batch at offset %d has message format v%d, and those from v2 on, which Kafka writes since 0.11, are read", ErrFormat, base, m)
		}
		return nil, nil, fmt.Errorf("%w: the batch at offset %d has message format v%d", ErrFormat, base, m)
	}
	size := int64(int32(binary.BigEndian.Uint32(in[atLength:]))) + atLength + 4
	switch {
	case size < headerSize:
		return nil, nil, fmt.Errorf("%w: the batch at offset %d has a length of %d bytes", ErrCorrupt, base, size)
	case size > int64(len(in)):
		return nil, nil, nil
	}
	frame = in[:size:size]
	if want, is := binary.BigEndian.Uint32(frame[atChecksum:]), crc32.Checksum(frame[atAttributes:], castagnoli); want != is {
		return nil, nil, fmt.Errorf("%w: the batch at offset %d has the checksum %08x and should have %08x", ErrCorrupt, base, is, want)
	}
	return frame, in[size:], nil
}

// read takes a frame of cut apart.
func read(frame []byte) (header, Batch, error) {
	be := binary.BigEndian
	h := header{
		base: int64(be.Uint64(frame)), leaderEpoch: int32(be.Uint32(frame[atLeaderEpoch:])), attributes: be.Uint16(frame[atAttributes:]),
		producer: int64(be.Uint64(frame[atProducerID:])),
	}
	delta := int32(be.Uint32(frame[atLastDelta:]))
	h.last = h.base + int64(delta)
	count := int32(be.Uint32(frame[atCount:]))
	if h.base < 0 || delta < 0 || count < 0 || h.last < 0 {
		return h, Batch{}, fmt.Errorf("%w at offset %d: %d records up to %d", ErrMalformed, h.base, count, h.last)
	}
	b := Batch{
		Last: h.last, Epoch: h.leaderEpoch, records: frame[headerSize:], left: count, base: h.base, next: h.base, time: int64(be.Uint64(frame[atBaseTime:])),
		codec: kgo.CompressionCodecType(h.attributes & compression),
	}
	if h.attributes&logAppendTime != 0 {
		b.oneTime, b.time = true, int64(be.Uint64(frame[atLatestTime:]))
	}
	return h, b, nil
}

// Open decompresses the records, after which Next may be called, and returns how many bytes that made.
func (b *Batch) Open(d kgo.Decompressor) (int, error) {
	if b.codec == kgo.CodecNone {
		return 0, nil
	}
	records, err := d.Decompress(b.records, b.codec)
	if err != nil {
		return 0, fmt.Errorf("%w at offset %d: decompress: %w", ErrMalformed, b.base, err)
	}
	b.records, b.codec = records, kgo.CodecNone
	return len(records), nil
}

// Err returns the error after which Next returned false; nil at the end of the batch.
func (b *Batch) Err() error { return b.err }

// Next decodes the next record. It returns false at the end of the batch, and where it is malformed.
func (b *Batch) Next(r *Record) bool {
	if b.left <= 0 {
		return false
	}
	size, at := varint(b.records, 0)
	if at < 0 || size < 1 || size > int64(len(b.records)-at) {
		return b.malformed("it ends too early")
	}
	in := b.records[at : at+int(size)]
	b.records = b.records[at+int(size):]
	millis, at := varint(in, 1) // after the attributes, which nobody uses
	delta, at := varint(in, at)
	r.Offset = b.base + delta
	if at < 0 || r.Offset < b.next || r.Offset > b.Last {
		return b.malformed("its offset is out of range")
	}
	r.Millis = b.time
	if !b.oneTime {
		r.Millis += millis
	}
	if r.Key, at = nullable(in, at); at < 0 {
		return b.malformed("its key is longer than it")
	}
	if r.Value, at = nullable(in, at); at < 0 {
		return b.malformed("its value is longer than it")
	}
	r.Headers = nil
	if at == len(in)-1 && in[at] == 0 { // no headers
		b.next = r.Offset + 1
		b.left--
		return true
	}
	return b.headers(r, in, at)
}

// headers decodes what follows the value.
func (b *Batch) headers(r *Record, in []byte, at int) bool {
	n, at := varint(in, at)
	if at < 0 || n < 0 || n > int64(len(in)-at)/2 { // each takes two bytes at least
		return b.malformed("it has an impossible number of headers")
	}
	if n > 0 {
		r.Headers = make([]kgo.RecordHeader, n)
	}
	for i := range r.Headers {
		var size int64
		size, at = varint(in, at)
		if at < 0 || size < 0 || size > int64(len(in)-at) {
			return b.malformed("the name of a header is longer than it")
		}
		h := &r.Headers[i]
		h.Key = string(in[at : at+int(size)])
		at += int(size)
		if h.Value, at = nullable(in, at); at < 0 {
			return b.malformed("a header is longer than it")
		}
	}
	if at != len(in) {
		return b.malformed("bytes follow it")
	}
	b.next = r.Offset + 1
	b.left--
	return true
}

func (b *Batch) malformed(what string) bool {
	b.err = fmt.Errorf("%w: %d records before the end of the batch from offset %d to %d, a record is broken: %s", ErrMalformed, b.left, b.base, b.Last, what)
	b.left, b.records = 0, nil
	return false
}

// nullable reads bytes after their length, which is negative for null, and returns the index after them, which is negative when there are not
// enough.
func nullable(in []byte, at int) ([]byte, int) {
	size, at := varint(in, at)
	if size < 0 || at < 0 {
		return nil, at
	}
	if size > int64(len(in)-at) {
		return nil, math.MinInt
	}
	end := at + int(size)
	return in[at:end:end], end
}

// varint reads a zigzag varint and returns the index after it, which is negative when there is none or at was negative.
func varint(in []byte, at int) (int64, int) {
	// Nearly all have one or two bytes.
	if uint(at) < uint(len(in)) {
		low := in[at]
		if low < 0x80 {
			return unzigzag(uint64(low)), at + 1
		}
		if at+1 < len(in) && in[at+1] < 0x80 {
			return unzigzag(uint64(low&0x7f) | uint64(in[at+1])<<7), at + 2
		}
	}
	return longVarint(in, at)
}

func longVarint(in []byte, at int) (int64, int) {
	if at < 0 || at > len(in) {
		return 0, math.MinInt
	}
	u, n := binary.Uvarint(in[at:])
	if n <= 0 {
		return 0, math.MinInt
	}
	return unzigzag(u), at + n
}

func unzigzag(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }
