package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrCorrupt says that the content is not what was written.
var ErrCorrupt = errors.New("state segment is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is CRC32C (Castagnoli).
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// maxBlock bounds a block of several rows. Two of them with their keys fill eight pages of a bbolt leaf.
const maxBlock = 16<<10 - 256

const blockHeader = 4 // CRC32C of what follows

// blockBuilder encodes rows. Each is: length of the start it shares with the key before, length of the rest of the key, length of the
// value plus 1 or 0 for a tombstone (all varints), rest of the key, value.
type blockBuilder struct {
	buf   []byte
	first []byte
	last  []byte
	rows  int
}

// fits reports whether a row can be added without exceeding the block size.
func (b *blockBuilder) fits(key, value []byte) bool {
	return b.rows == 0 || len(b.buf)+len(key)+len(value)+3*binary.MaxVarintLen32 <= maxBlock
}

func (b *blockBuilder) add(key, value []byte, tombstone bool) {
	if b.rows == 0 {
		b.buf = append(b.buf[:0], 0, 0, 0, 0)
		b.first = append(b.first[:0], key...)
		b.last = b.last[:0]
	}
	shared := commonPrefix(b.last, key)
	b.buf = binary.AppendUvarint(b.buf, uint64(shared))
	b.buf = binary.AppendUvarint(b.buf, uint64(len(key)-shared))
	size := uint64(len(value)) + 1
	if tombstone {
		size, value = 0, nil
	}
	b.buf = binary.AppendUvarint(b.buf, size)
	b.buf = append(b.buf, key[shared:]...)
	b.buf = append(b.buf, value...)
	b.last = append(b.last[:0], key...)
	b.rows++
}

// seal returns the finished block, valid until the next add, and empties the builder.
func (b *blockBuilder) seal() []byte {
	binary.BigEndian.PutUint32(b.buf, Checksum(b.buf[blockHeader:]))
	b.rows = 0
	return b.buf
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// blockReader walks the rows of one block.
type blockReader struct {
	rest      []byte
	key       []byte
	value     []byte
	tombstone bool
}

// reset checks a block and stands before its first row.
func (r *blockReader) reset(block []byte) error {
	if len(block) < blockHeader {
		return fmt.Errorf("%w: block of %d bytes", ErrCorrupt, len(block))
	}
	if sum := Checksum(block[blockHeader:]); sum != binary.BigEndian.Uint32(block) {
		return fmt.Errorf("%w: block has checksum %08x, not %08x", ErrCorrupt, sum, binary.BigEndian.Uint32(block))
	}
	r.rest, r.key = block[blockHeader:], r.key[:0]
	return nil
}

// next moves to the next row; false without an error is the end of the block.
func (r *blockReader) next() (bool, error) {
	if len(r.rest) == 0 {
		return false, nil
	}
	shared, ok1 := r.cut()
	unshared, ok2 := r.cut()
	size, ok3 := r.cut()
	stored := size
	if stored > 0 {
		stored--
	}
	if !ok1 || !ok2 || !ok3 || shared > uint64(len(r.key)) || unshared > uint64(len(r.rest)) ||
		stored > uint64(len(r.rest))-unshared || shared+unshared < PrefixSize {
		return false, fmt.Errorf("%w: row lengths %d, %d, %d", ErrCorrupt, shared, unshared, size)
	}
	r.key = append(r.key[:shared], r.rest[:unshared]...)
	r.value = r.rest[unshared : unshared+stored : unshared+stored]
	r.tombstone = size == 0
	r.rest = r.rest[unshared+stored:]
	return true, nil
}

func (r *blockReader) cut() (uint64, bool) {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		return 0, false
	}
	r.rest = r.rest[size:]
	return n, true
}
