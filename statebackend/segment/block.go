package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// ErrCorrupt says that the content is not what was written.
var ErrCorrupt = errors.New("state segment is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is CRC32C (Castagnoli).
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// A block has a few tens of rows at most, so that few are passed to find one, and one of the sizes of which several with their keys fill pages of
// bbolt, which puts two blocks at least into a leaf.
const (
	manyRows = 24
	// blockOverhead is what bbolt adds to a block and its key, at most.
	blockOverhead = 28
)

// blockSizes are what a block with its key may take, in bytes: 12 to 2 in a page of 4 KiB, then 2 in pages next to each other.
var blockSizes = [...]int{340, 510, 680, 816, 1020, 1360, 2040, 4088, 8184, 16376}

const (
	blockHeader = 4 // CRC32C of what follows
	boundSize   = 6 // at the end of a block: see bound
	stampSize   = 9 // with what tells that there is one
)

// bound is where a block of the third format ends: at the first key of the block behind it. It is at the end of the block: the part of
// that key that the block's own first key does not begin with, then how much it does begin with (2 bytes), then the length of the part
// times four, plus 1 in the first block and 2 in the last (4 bytes).
type bound struct {
	own         []byte // the block's first key
	shared      int
	rest        []byte
	first, last bool
}

// is reports whether the bound is key.
func (b bound) is(key []byte) bool {
	return len(key) == b.shared+len(b.rest) && bytes.Equal(key[:b.shared], b.own[:b.shared]) && bytes.Equal(key[b.shared:], b.rest)
}

// blockBuilder encodes rows. Each is: length of the start it shares with the key before, length of the rest of the key, length of the
// value plus 1 or 0 for a tombstone (all varints), rest of the key, value. A row with a stamp has a 0 before the length of the rest of the
// key, which is never 0 itself, and its stamp, 8 bytes, before the rest of the key.
type blockBuilder struct {
	buf   []byte
	first []byte
	// agreed is how much of its start the last key shares with the first one.
	agreed int
	rows   int
}

// fits reports whether a row, whose key begins like the one before, can be added without exceeding the size that the block should have.
func (b *blockBuilder) fits(key, value []byte, shared int, stamp int64) bool {
	if b.rows == 0 {
		return true
	}
	most := blockSizes[len(blockSizes)-1]
	row := len(key) - shared + len(value) + 2 + binary.MaxVarintLen32
	if stamp != NoStamp {
		row += stampSize
	}
	size := len(b.buf) + min(len(b.first), maxBlockKey) + blockOverhead + boundSize + len(key)
	if b.rows < manyRows && size+row <= most {
		return true // whatever the key has in common with the block's first one
	}
	size -= min(b.agreed, shared) // since keys ascend
	next := size + row
	if next > most {
		return false
	}
	if b.rows < manyRows {
		return true
	}
	for _, limit := range blockSizes {
		if size <= limit && next > limit {
			return false
		}
	}
	return true
}

func (b *blockBuilder) add(key, value []byte, shared int, tombstone bool, stamp int64) {
	if b.rows == 0 {
		b.buf = append(b.buf[:0], 0, 0, 0, 0)
		b.first = append(b.first[:0], key...)
		b.agreed, shared = len(key), 0
	} else {
		b.agreed = min(b.agreed, shared)
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(shared))
	if stamp != NoStamp {
		b.buf = append(b.buf, 0)
	}
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)-shared))
	size := uint64(len(value)) + 1
	if tombstone {
		size, value = 0, nil
	}
	b.buf = binary.AppendUvarint(b.buf, size)
	if stamp != NoStamp {
		b.buf = binary.BigEndian.AppendUint64(b.buf, uint64(stamp))
	}
	b.buf = append(b.buf, key[shared:]...)
	b.buf = append(b.buf, value...)
	b.rows++
}

// seal returns the finished block, valid until the next add, and empties the builder. next is the key of the row behind it, nil when it
// is the last.
func (b *blockBuilder) seal(next []byte, first bool) []byte {
	shared := min(commonPrefix(b.first, next), math.MaxUint16)
	b.buf = append(b.buf, next[shared:]...)
	b.buf = binary.BigEndian.AppendUint16(b.buf, uint16(shared))
	word := uint32(len(next)-shared) << 2
	if first {
		word |= 1
	}
	if next == nil {
		word |= 2
	}
	b.buf = binary.BigEndian.AppendUint32(b.buf, word)
	binary.BigEndian.PutUint32(b.buf, Checksum(b.buf[blockHeader:]))
	b.rows = 0
	return b.buf
}

func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if d := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); d != 0 {
			return i + bits.TrailingZeros64(d)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// blockReader walks the rows of one block, of which it has a copy: the block may be in a mapped file, which cannot be read any more when the
// disk fails, or is closed.
type blockReader struct {
	block     []byte // the copy
	spare     []byte // of the block before
	bound     bound
	rest      []byte
	key       []byte
	shared    int // length of the start that key shares with the key before
	value     []byte
	tombstone bool
	stamp     int64
}

// manyBytes is how much room for copies is kept from block to block.
const manyBytes = 64 << 10

// copyOf returns a copy of a block. That of the block before stays as it is until the next call.
func (r *blockReader) copyOf(block []byte) []byte {
	into := r.spare[:0]
	if cap(into) > manyBytes && len(block) <= manyBytes {
		into = nil
	}
	r.block, r.spare = append(into, block...), r.block
	return r.block
}

// reset checks a block and stands before its first row. What there was of the block before is valid until the next call.
func (r *blockReader) reset(block []byte, bounded bool) error {
	block = r.copyOf(block)
	if len(block) < blockHeader {
		return fmt.Errorf("%w: block of %d bytes", ErrCorrupt, len(block))
	}
	if sum := Checksum(block[blockHeader:]); sum != binary.BigEndian.Uint32(block) {
		return fmt.Errorf("%w: block has checksum %08x, not %08x", ErrCorrupt, sum, binary.BigEndian.Uint32(block))
	}
	r.rest, r.key, r.bound = block[blockHeader:], r.key[:0], bound{}
	if !bounded {
		return nil
	}
	return r.cutBound()
}

func (r *blockReader) cutBound() error {
	end := len(r.rest) - boundSize
	if end < 0 {
		return fmt.Errorf("%w: block without an end", ErrCorrupt)
	}
	word := binary.BigEndian.Uint32(r.rest[end+2:])
	b := bound{shared: int(binary.BigEndian.Uint16(r.rest[end:])), first: word&1 != 0, last: word&2 != 0}
	start := end - int(word>>2)
	if start < 0 {
		return fmt.Errorf("%w: end of a block", ErrCorrupt)
	}
	b.rest, r.rest = r.rest[start:end], r.rest[:start]
	rows := r.rest
	if more, err := r.next(); err != nil || !more {
		return fmt.Errorf("%w: block without a row", ErrCorrupt)
	}
	// The first row shares nothing, so its key is in the block as it is.
	at := len(rows) - len(r.rest) - len(r.value) - len(r.key)
	b.own = rows[at : at+len(r.key)]
	if b.shared > len(b.own) {
		return fmt.Errorf("%w: end of a block", ErrCorrupt)
	}
	r.bound, r.rest, r.key = b, rows, r.key[:0]
	return nil
}

// next moves to the next row; false without an error is the end of the block.
func (r *blockReader) next() (bool, error) {
	if len(r.rest) == 0 {
		return false, nil
	}
	shared, ok1 := r.cut()
	unshared, ok2 := r.cut()
	stamped := unshared == 0
	if stamped {
		unshared, ok2 = r.cut()
	}
	size, ok3 := r.cut()
	r.stamp = NoStamp
	if stamped {
		if len(r.rest) < 8 {
			return false, fmt.Errorf("%w: row stamp", ErrCorrupt)
		}
		r.stamp, r.rest = int64(binary.BigEndian.Uint64(r.rest)), r.rest[8:]
	}
	stored := size
	if stored > 0 {
		stored--
	}
	if !ok1 || !ok2 || !ok3 || shared > uint64(len(r.key)) || unshared > uint64(len(r.rest)) ||
		stored > uint64(len(r.rest))-unshared || shared+unshared < PrefixSize {
		return false, fmt.Errorf("%w: row lengths %d, %d, %d", ErrCorrupt, shared, unshared, size)
	}
	r.shared = int(shared)
	r.key = append(r.key[:shared], r.rest[:unshared]...)
	r.value = r.rest[unshared : unshared+stored : unshared+stored]
	r.tombstone = size == 0
	r.rest = r.rest[unshared+stored:]
	return true, nil
}

// seek moves on to the first row whose key is not less than key; it begins before the first row. Rows that agree with the one before
// further than that one with key are less than key too.
func (r *blockReader) seek(key []byte) (found bool, err error) {
	for agreed := 0; ; {
		more, err := r.next()
		if !more || err != nil {
			return false, err
		}
		switch {
		case r.shared > agreed:
		case r.shared < agreed:
			return true, nil
		default:
			for agreed < len(r.key) && agreed < len(key) && r.key[agreed] == key[agreed] {
				agreed++
			}
			if agreed == len(key) || agreed < len(r.key) && r.key[agreed] > key[agreed] {
				return true, nil
			}
		}
	}
}

func (r *blockReader) cut() (uint64, bool) {
	if len(r.rest) > 0 && r.rest[0] < 0x80 {
		n := r.rest[0]
		r.rest = r.rest[1:]
		return uint64(n), true
	}
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		return 0, false
	}
	r.rest = r.rest[size:]
	return n, true
}
