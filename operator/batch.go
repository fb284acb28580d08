package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/weir-stream/weir/codec"
)

// Bounds of a batch, whichever is met first. The second is a target: sizes are estimated from the batches before.
const (
	MaxBatchRecords = 512
	MaxBatchBytes   = 64 << 10
)

// Bounds of the wire form, which unlike those of a batch are checked on what was encoded.
const (
	// MaxRecordBytes is the largest encoded record that goes to a task of another worker.
	MaxRecordBytes = 32 << 20
	// MaxEncodedBytes is how many bytes of a batch's records are encoded together before a last one.
	MaxEncodedBytes = 1 << 20
)

var (
	// ErrBatch is returned for bytes that are not the wire form of a batch.
	ErrBatch = errors.New("malformed batch")
	// ErrRecordTooLarge is returned for a record of more than MaxRecordBytes.
	ErrRecordTooLarge = errors.New("record is too large to be sent to another worker")
)

// batch is a run of records. One goroutine owns it at a time.
type batch[T any] struct {
	values     []T
	timestamps []int64
	limit      int // of records
	home       *batchPool[T]
}

var _ Batch = (*batch[int])(nil)

// Len implements Batch.
func (b *batch[T]) Len() int { return len(b.values) }

// AppendEncoded implements Batch. The wire form is the number of records, then of each record the difference of its timestamp from
// that of the record before (zigzag varint), the length of its payload (varint) and the payload.
func (b *batch[T]) AppendEncoded(dst []byte, from int) (out []byte, to int, err error) {
	start := len(dst)
	dst = binary.AppendUvarint(dst, uint64(len(b.values)-from))
	countBytes := len(dst) - start
	last := int64(0)
	for to = from; to < len(b.values) && len(dst)-start < MaxEncodedBytes; to++ {
		dst = binary.AppendVarint(dst, b.timestamps[to]-last)
		last = b.timestamps[to]
		if dst, err = b.appendPayload(dst, b.values[to]); err != nil {
			return nil, to, err
		}
	}
	if to < len(b.values) {
		putPaddedUvarint(dst[start:start+countBytes], uint64(to-from)) // in the room that the larger number has taken
	}
	b.home.observe(len(dst)-start, to-from)
	return dst, to, nil
}

// appendPayload appends the length of an encoded value and the value.
func (b *batch[T]) appendPayload(dst []byte, v T) ([]byte, error) {
	// The length goes before the payload and is known after it: a byte is kept free, which suffices for most, and the payload is moved
	// for longer ones.
	at := len(dst)
	dst, err := b.home.codec.Append(append(dst, 0), v)
	if err != nil {
		return nil, fmt.Errorf("encoding a record: %w", err)
	}
	n := len(dst) - at - 1
	if n > MaxRecordBytes {
		return nil, Fatal(fmt.Errorf("%w: encoded it has %d bytes, the limit is %d", ErrRecordTooLarge, n, MaxRecordBytes))
	}
	if n < 0x80 {
		dst[at] = byte(n)
		return dst, nil
	}
	var length [binary.MaxVarintLen64]byte
	l := binary.PutUvarint(length[:], uint64(n))
	dst = append(dst, length[:l-1]...)
	copy(dst[at+l:], dst[at+1:at+1+n])
	copy(dst[at:], length[:l])
	return dst, nil
}

// putPaddedUvarint fills dst with a number that needs no more than its length.
func putPaddedUvarint(dst []byte, n uint64) {
	for i := range dst {
		dst[i] = byte(n) | 0x80
		n >>= 7
	}
	dst[len(dst)-1] &^= 0x80
}

// Release implements Batch.
func (b *batch[T]) Release() {
	clear(b.values) // keeps nothing alive
	b.values, b.timestamps = b.values[:0], b.timestamps[:0]
	b.home.free.Put(b)
}

// batchPool makes the batches of one edge and learns how large its records are. It is safe for concurrent use.
type batchPool[T any] struct {
	codec codec.Codec[T]
	free  sync.Pool
	// recordBytes is the average encoded size of late, at least 1; 0 before the first record.
	recordBytes atomic.Int64
}

func (p *batchPool[T]) get() *batch[T] {
	if b, ok := p.free.Get().(*batch[T]); ok {
		return b
	}
	return &batch[T]{home: p}
}

// limit returns how many records a batch takes.
func (p *batchPool[T]) limit() int {
	size := p.recordBytes.Load()
	if size == 0 {
		return MaxBatchRecords
	}
	return int(min(max(MaxBatchBytes/size, 1), MaxBatchRecords))
}

// observe learns from records that took n bytes.
func (p *batchPool[T]) observe(n, records int) {
	if records > 0 {
		p.recordBytes.Store(max(int64(n/records), 1))
	}
}

// decode passes the records of an encoded batch to out.
func (p *batchPool[T]) decode(data []byte, out Collector[T]) error {
	count, n := binary.Uvarint(data)
	if n <= 0 {
		return fmt.Errorf("%w: no record count", ErrBatch)
	}
	data = data[n:]
	timestamp := int64(0)
	for i := range count {
		delta, n := binary.Varint(data)
		if n <= 0 {
			return fmt.Errorf("%w: no timestamp of record %d", ErrBatch, i)
		}
		data = data[n:]
		length, n := binary.Uvarint(data)
		if n <= 0 || length > uint64(len(data)-n) {
			return fmt.Errorf("%w: record %d is cut off", ErrBatch, i)
		}
		timestamp += delta
		v, err := p.codec.Decode(data[n : n+int(length)])
		if err != nil {
			return fmt.Errorf("decoding record %d of a batch: %w", i, err)
		}
		data = data[n+int(length):]
		if err := out.Collect(v, timestamp); err != nil {
			return err
		}
	}
	if len(data) > 0 {
		return fmt.Errorf("%w: %d bytes after the last record", ErrBatch, len(data))
	}
	return nil
}
