package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/weir-stream/weir/internal/keygroup"
)

// maxBlockKey bounds the keys of blocks, since bbolt bounds keys. A longer first key is cut and numbered, which keeps the order.
const maxBlockKey = 1 << 10

// Buckets and keys inside a segment file.
var (
	blocksBucket = []byte("blocks")
	metaBucket   = []byte("meta")
	headerKey    = []byte("header")
	bloomKey     = []byte("bloom")
)

// Writer writes one segment. Rows are added in ascending order.
type Writer struct {
	path      string
	limit     int
	filterLen func(key []byte) int

	block   blockBuilder
	inline  []byte // blocks with their lengths, while the segment is small
	last    []byte
	entries uint64
	groups  keygroup.Range
	written uint64 // bytes of blocks
	blocks  int
	hashes  []uint64
	filter  []byte // start of the last key that went into the filter

	file *boltFile // nil while the segment is small
	seq  uint64
}

// Result is a finished segment: a file, or its content when that is small.
type Result struct {
	Path    string // empty for an inline segment
	Inline  []byte
	Size    uint64 // bytes of the file or the content
	CRC32C  uint32 // of the file or the content
	SHA256  []byte // of the file
	Entries uint64 // rows, tombstones included
	Drops   int
	Groups  keygroup.Range // of the rows
	Format  uint32         // version
}

// NewWriter returns a writer that makes a file at path, which must not exist, if the segment becomes larger than inline bytes.
// filterLen returns the length of the start of a row's key that is looked for in the Bloom filter.
func NewWriter(path string, inline int, filterLen func(key []byte) int) *Writer {
	return &Writer{path: path, limit: inline, filterLen: filterLen}
}

// Size returns the number of bytes of finished blocks so far.
func (w *Writer) Size() uint64 { return w.written }

// LastGroup returns the key group of the last row.
func (w *Writer) LastGroup() int { return Group(w.last) }

// Add appends a row.
func (w *Writer) Add(key, value []byte, tombstone bool) error {
	return w.add(key, value, tombstone, NoStamp)
}

// AddStamped appends a row with a stamp, which may be NoStamp.
func (w *Writer) AddStamped(key, value []byte, stamp int64) error {
	return w.add(key, value, false, stamp)
}

func (w *Writer) add(key, value []byte, tombstone bool, stamp int64) error {
	shared := commonPrefix(w.last, key)
	if w.entries > 0 && (shared == len(key) || shared < len(w.last) && w.last[shared] > key[shared]) {
		return fmt.Errorf("row %x does not follow row %x", key, w.last)
	}
	if w.entries == 0 {
		w.groups.First = Group(key)
	}
	w.groups.Last = Group(key)
	w.last = append(w.last[:shared], key[shared:]...)
	if !w.block.fits(key, value, shared, stamp) {
		if err := w.flush(key); err != nil {
			return err
		}
	}
	w.block.add(key, value, shared, tombstone, stamp)
	w.entries++
	switch part := key[:w.filterLen(key)]; {
	case len(part) == len(key): // no two keys are the same
		w.hashes = append(w.hashes, Hash(key))
	case !bytes.Equal(part, w.filter):
		w.filter = append(w.filter[:0], part...)
		w.hashes = append(w.hashes, Hash(part))
	}
	return nil
}

// flush moves the block being built to where the others are. next is the first key of the one behind it, nil for the last.
func (w *Writer) flush(next []byte) error {
	if w.block.rows == 0 {
		return nil
	}
	block := w.block.seal(next, w.blocks == 0)
	w.blocks++
	w.written += uint64(len(block))
	if w.file == nil {
		w.inline = binary.AppendUvarint(w.inline, uint64(len(block)))
		w.inline = append(w.inline, block...)
		if len(w.inline) <= w.limit {
			return nil
		}
		return w.spill()
	}
	return w.put(w.block.first, block)
}

// spill starts the file with the blocks collected so far.
func (w *Writer) spill() (err error) {
	if w.file, err = createBoltFile(w.path); err != nil {
		return err
	}
	var r blockReader
	for rest := w.inline; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		block := rest[size : size+int(n)]
		rest = rest[size+int(n):]
		if err := r.reset(block, true); err != nil {
			return err
		}
		if _, err := r.next(); err != nil {
			return err
		}
		if err := w.put(r.key, block); err != nil {
			return err
		}
	}
	w.inline = nil
	return nil
}

func (w *Writer) put(first, block []byte) error {
	if len(first) > maxBlockKey {
		w.seq++
		first = binary.BigEndian.AppendUint64(bytes.Clone(first[:maxBlockKey]), w.seq)
	}
	return w.file.put(first, block)
}

// Finish completes the segment. drops apply to older segments.
func (w *Writer) Finish(drops []Drop) (Result, error) {
	if err := w.flush(nil); err != nil {
		return Result{}, err
	}
	h := header{version: BoundedFormat, entries: w.entries, drops: drops}
	head := h.append(nil)
	if w.file == nil {
		content := append(head, w.inline...)
		if len(content) <= w.limit {
			result := w.result(uint64(len(content)), Checksum(content), drops)
			result.Inline = content
			return result, nil
		}
		if err := w.spill(); err != nil {
			return Result{}, err
		}
	}
	filter := buildFilter(w.hashes)
	h.filter = uint64(len(filter))
	// No sync: the upload is what makes it durable, and a local copy is read whole after a crash of the machine.
	file := w.file
	w.file = nil
	size, sum, digest, err := file.finish(h.append(nil), filter)
	result := w.result(size, sum, drops)
	result.Path, result.SHA256 = w.path, digest
	return result, err
}

func (w *Writer) result(size uint64, sum uint32, drops []Drop) Result {
	return Result{Size: size, CRC32C: sum, Entries: w.entries, Drops: len(drops), Groups: w.groups, Format: BoundedFormat}
}

// Abort gives up and removes what was written. After Finish it does nothing but remove the file.
func (w *Writer) Abort() error {
	var errs []error
	if w.file != nil {
		errs = append(errs, w.file.close())
	}
	w.file = nil
	if err := os.Remove(w.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
