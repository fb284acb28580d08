package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"go.etcd.io/bbolt"
)

// Segment is an open segment.
type Segment struct {
	header
	dropped map[Drop]struct{}

	blocks [][]byte // inline

	db    *bbolt.DB // file
	tx    *bbolt.Tx // keeps the mapping of the filter
	bloom []byte
}

// OpenInline opens a segment that travelled by value. content must not change.
func OpenInline(content []byte) (*Segment, error) {
	h, rest, err := cutHeader(content)
	if err != nil {
		return nil, err
	}
	s := newSegment(h)
	for len(rest) > 0 {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return nil, fmt.Errorf("%w: block length", ErrCorrupt)
		}
		s.blocks = append(s.blocks, rest[size:size+int(n)])
		rest = rest[size+int(n):]
	}
	return s, nil
}

// Open opens a segment file whose size must be as given: a shorter file would crash the process when read through its mapping.
func Open(path string, size uint64) (*Segment, error) {
	s, err := open(path, size)
	if err != nil {
		return nil, fmt.Errorf("open state segment %s: %w", path, err)
	}
	return s, nil
}

func open(path string, size uint64) (*Segment, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if uint64(info.Size()) != size {
		return nil, fmt.Errorf("%w: the file has %d bytes, not %d", ErrCorrupt, info.Size(), size)
	}
	db, err := bbolt.Open(path, 0o444, &bbolt.Options{ReadOnly: true, Timeout: time.Second, NoStatistics: true})
	if err != nil {
		return nil, err
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s, err := openMeta(tx)
	if err != nil {
		return nil, errors.Join(err, tx.Rollback(), db.Close())
	}
	s.db, s.tx = db, tx
	return s, nil
}

func openMeta(tx *bbolt.Tx) (*Segment, error) {
	meta := tx.Bucket(metaBucket)
	if meta == nil || tx.Bucket(blocksBucket) == nil {
		return nil, fmt.Errorf("%w: no segment in the file", ErrCorrupt)
	}
	h, _, err := cutHeader(meta.Get(headerKey))
	if err != nil {
		return nil, err
	}
	s := newSegment(h)
	s.bloom = meta.Get(bloomKey)
	return s, checkBloom(s.bloom)
}

func newSegment(h header) *Segment {
	s := &Segment{header: h, dropped: make(map[Drop]struct{}, len(h.drops))}
	for _, d := range h.drops {
		s.dropped[d] = struct{}{}
	}
	return s
}

// Entries returns the number of rows, tombstones included.
func (s *Segment) Entries() uint64 { return s.entries }

// Drops returns the namespaces that the segment hides in older ones. The slice must not be modified.
func (s *Segment) Drops() []Drop { return s.drops }

// HasDrop reports whether the segment hides a namespace in older ones.
func (s *Segment) HasDrop(d Drop) bool {
	_, ok := s.dropped[d]
	return ok
}

// MayContain reports whether the segment may have a row with the hashed start of a key; false is certain.
func (s *Segment) MayContain(hash uint64) bool {
	return s.bloom == nil || bloomHas(s.bloom, hash)
}

// Close releases the segment; its cursors must be closed before.
func (s *Segment) Close() error {
	if s.db == nil {
		return nil
	}
	return errors.Join(s.tx.Rollback(), s.db.Close())
}

// Cursor walks the rows of a segment in order.
type Cursor struct {
	blocks [][]byte
	at     int

	tx   *bbolt.Tx
	bolt *bbolt.Cursor

	row   blockReader
	valid bool
	err   error
}

// NewCursor returns a cursor that stands nowhere.
func (s *Segment) NewCursor() (*Cursor, error) {
	if s.db == nil {
		return &Cursor{blocks: s.blocks}, nil
	}
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, err
	}
	return &Cursor{tx: tx, bolt: tx.Bucket(blocksBucket).Cursor()}, nil
}

// Close releases the cursor.
func (c *Cursor) Close() error {
	if c.tx == nil {
		return nil
	}
	return c.tx.Rollback()
}

// Valid reports whether the cursor stands on a row.
func (c *Cursor) Valid() bool { return c.valid }

// Err returns the error that ended the walk, if any.
func (c *Cursor) Err() error { return c.err }

// Key returns the row's key, valid until the cursor moves.
func (c *Cursor) Key() []byte { return c.row.key }

// Value returns the row's value, valid until the cursor is closed.
func (c *Cursor) Value() []byte { return c.row.value }

// Tombstone reports whether the row says that there is none.
func (c *Cursor) Tombstone() bool { return c.row.tombstone }

// Stamp returns the row's stamp, or NoStamp.
func (c *Cursor) Stamp() int64 { return c.row.stamp }

// Seek moves to the first row whose key is not less than key.
func (c *Cursor) Seek(key []byte) {
	block, ok := c.seekBlock(key)
	for c.valid = false; ok && c.err == nil; block, ok = c.nextBlock() {
		if err := c.row.reset(block); err != nil {
			c.fail(err)
			return
		}
		found, err := c.row.seek(key)
		c.valid = found
		if found || err != nil {
			c.fail(err)
			return
		}
	}
}

// Next moves to the next row.
func (c *Cursor) Next() {
	if !c.valid {
		return
	}
	ok, err := c.row.next()
	if err != nil || ok {
		c.fail(err)
		return
	}
	c.load(c.nextBlock())
}

// load moves to the first row of a block.
func (c *Cursor) load(block []byte, ok bool) {
	c.valid = ok
	if !ok || c.err != nil {
		c.valid = false
		return
	}
	if err := c.row.reset(block); err != nil {
		c.fail(err)
		return
	}
	more, err := c.row.next()
	if err == nil && !more {
		err = fmt.Errorf("%w: empty block", ErrCorrupt)
	}
	c.fail(err)
}

func (c *Cursor) fail(err error) {
	if err != nil {
		c.err, c.valid = err, false
	}
}

// seekBlock returns the last block that does not begin after key, or the first block.
func (c *Cursor) seekBlock(key []byte) (block []byte, ok bool) {
	if c.bolt == nil {
		c.at = 0
		return c.nextInline()
	}
	target := key
	if len(key) > maxBlockKey {
		target = append(bytes.Clone(key[:maxBlockKey]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	}
	k, v := c.bolt.Seek(target)
	if k != nil && bytes.Equal(k, target) {
		return v, true
	}
	if k == nil {
		k, v = c.bolt.Last()
	} else {
		k, v = c.bolt.Prev()
	}
	// Blocks whose first keys were cut may lie after key.
	for len(k) > maxBlockKey && c.beginsAfter(v, key) {
		k, v = c.bolt.Prev()
	}
	if k == nil {
		k, v = c.bolt.First()
	}
	return v, k != nil
}

func (c *Cursor) beginsAfter(block, key []byte) bool {
	c.load(block, true)
	return c.valid && bytes.Compare(c.row.key, key) > 0
}

func (c *Cursor) nextBlock() (block []byte, ok bool) {
	if c.bolt == nil {
		return c.nextInline()
	}
	k, v := c.bolt.Next()
	return v, k != nil
}

func (c *Cursor) nextInline() (block []byte, ok bool) {
	if c.at == len(c.blocks) {
		return nil, false
	}
	c.at++
	return c.blocks[c.at-1], true
}
