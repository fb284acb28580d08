package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"go.etcd.io/bbolt"

	"github.com/weir-stream/weir/internal/keygroup"
)

// commitBytes is how much a bbolt transaction collects in memory before it is written out.
const commitBytes = 8 << 20

// mapBytes is how much of the address space a file is given while it is written. When it grows beyond, bbolt copies what the transaction
// holds and maps it anew.
const mapBytes = 128 << 20

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

	db      *bbolt.DB
	tx      *bbolt.Tx
	pending int
	seq     uint64
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
	if w.entries > 0 && bytes.Compare(w.last, key) >= 0 {
		return fmt.Errorf("row %x does not follow row %x", key, w.last)
	}
	if w.entries == 0 {
		w.groups.First = Group(key)
	}
	w.groups.Last = Group(key)
	w.last = append(w.last[:0], key...)
	if !w.block.fits(key, value, stamp) {
		if err := w.flush(key); err != nil {
			return err
		}
	}
	w.block.add(key, value, tombstone, stamp)
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
	if w.db == nil {
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
func (w *Writer) spill() error {
	db, err := bbolt.Open(w.path, 0o644, &bbolt.Options{
		NoSync: true, NoGrowSync: true, NoFreelistSync: true, NoStatistics: true, FreelistType: bbolt.FreelistMapType,
		InitialMmapSize: mapBytes,
	})
	if err != nil {
		return err
	}
	db.AllocSize = os.Getpagesize() // the file grows by what is written, not by more
	w.db = db
	if w.tx, err = db.Begin(true); err != nil {
		return err
	}
	for _, name := range [][]byte{blocksBucket, metaBucket} {
		if _, err := w.tx.CreateBucket(name); err != nil {
			return err
		}
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
	b := w.tx.Bucket(blocksBucket)
	b.FillPercent = 1
	// bbolt keeps the slices until the transaction is committed.
	if err := b.Put(w.blockKey(first), bytes.Clone(block)); err != nil {
		return err
	}
	w.pending += len(block)
	if w.pending < commitBytes {
		return nil
	}
	w.pending = 0
	if err := w.commit(); err != nil {
		return err
	}
	tx, err := w.db.Begin(true)
	w.tx = tx
	return err
}

func (w *Writer) commit() error {
	tx := w.tx
	w.tx = nil
	return tx.Commit()
}

func (w *Writer) blockKey(first []byte) []byte {
	if len(first) <= maxBlockKey {
		return bytes.Clone(first)
	}
	w.seq++
	return binary.BigEndian.AppendUint64(bytes.Clone(first[:maxBlockKey]), w.seq)
}

// Finish completes the segment. drops apply to older segments.
func (w *Writer) Finish(drops []Drop) (Result, error) {
	if err := w.flush(nil); err != nil {
		return Result{}, err
	}
	h := header{version: BoundedFormat, entries: w.entries, drops: drops}
	head := h.append(nil)
	if w.db == nil {
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
	meta := w.tx.Bucket(metaBucket)
	meta.FillPercent = 1
	if err := errors.Join(meta.Put(headerKey, h.append(nil)), meta.Put(bloomKey, filter)); err != nil {
		return Result{}, err
	}
	if err := w.commit(); err != nil {
		return Result{}, err
	}
	// No sync: the upload is what makes it durable, and a local copy is read whole after a crash of the machine.
	if err := w.db.Close(); err != nil {
		return Result{}, err
	}
	w.db = nil
	size, sum, digest, err := checksumFile(w.path)
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
	if w.tx != nil {
		errs = append(errs, w.tx.Rollback())
	}
	if w.db != nil {
		errs = append(errs, w.db.Close())
	}
	w.tx, w.db = nil, nil
	if err := os.Remove(w.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func checksumFile(path string) (size uint64, sum uint32, digest []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, nil, err
	}
	crc, sha := crc32.New(castagnoli), sha256.New()
	n, err := io.Copy(io.MultiWriter(crc, sha), f)
	return uint64(n), crc.Sum32(), sha.Sum(nil), errors.Join(err, f.Close())
}
