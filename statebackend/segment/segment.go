package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

// Segment is an open segment.
type Segment struct {
	header
	dropped map[Drop]struct{}

	blocks [][]byte // inline

	path   string
	pages  *pages // file
	leaves atomic.Pointer[leaves]
	filter []byte
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

// Open opens a segment file whose size must be as given. It reads a few pages only; damage in the others is met by who reads them.
func Open(path string, size uint64) (*Segment, error) {
	s, err := open(path, size)
	if err != nil {
		return nil, fmt.Errorf("open state segment %s: %w", path, err)
	}
	return s, nil
}

func open(path string, size uint64) (*Segment, error) {
	p, err := mapPages(path, size)
	if err != nil {
		return nil, err
	}
	s, err := openPages(path, p)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return s, nil
}

func openPages(path string, p *pages) (_ *Segment, err error) {
	defer func(before bool) { err = errors.Join(err, caught(recover(), before)) }(debug.SetPanicOnFault(true))
	if err := p.findRoot(); err != nil {
		return nil, err
	}
	meta, err := p.bucket(metaBucket)
	if err != nil {
		return nil, err
	}
	head, err := meta.get(headerKey)
	if err != nil {
		return nil, err
	}
	h, _, err := cutHeader(head)
	if err != nil {
		return nil, err
	}
	s := newSegment(h)
	s.path, s.pages = path, p
	if s.filter, err = meta.get(bloomKey); err != nil {
		return nil, err
	}
	if _, err := p.bucket(blocksBucket); err != nil {
		return nil, err
	}
	return s, s.checkFilter()
}

func (s *Segment) checkFilter() error {
	if !s.bounded() {
		return checkBloom(s.filter)
	}
	if n := uint64(len(s.filter)); n == 0 || n != s.header.filter || n%lineSize != 0 {
		return fmt.Errorf("%w: filter of %d bytes, not %d", ErrCorrupt, n, s.header.filter)
	}
	return nil
}

// caught is for a deferred function that reads a mapped file: a page that the disk does not give back, or that is beyond the end of a
// file that was cut short, is damage and no reason to end the process.
func caught(panicked any, before bool) error {
	debug.SetPanicOnFault(before)
	if panicked == nil {
		return nil
	}
	fault, ok := panicked.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok {
		panic(panicked)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, fault)
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
	return Candidate([]Source{{Segment: s}}, 1, 0, hash) == 0
}

func (s *Segment) mayContain(hash uint64, bits *[lineProbes]probe) bool {
	switch {
	case s.filter == nil:
		return true
	case s.bounded():
		return filterHas(s.filter, hash, bits)
	}
	return bloomHas(s.filter, hash)
}

// Candidate returns the last of the first n sources that may have a row of a key group with the hashed start of a key, or -1; that those
// behind it have none is certain.
func Candidate(sources []Source, n, group int, hash uint64) (at int) {
	defer func(before bool) {
		// Where a filter cannot be read, its source stays in question: the rows have checksums of their own.
		_ = caught(recover(), before)
	}(debug.SetPanicOnFault(true))
	return candidate(sources, n, group, hash)
}

// candidate is Candidate for who has a guard of its own.
func candidate(sources []Source, n, group int, hash uint64) int {
	bits := probesOf(hash)
	for at := n - 1; at >= 0; at-- {
		if s := &sources[at]; s.Groups.Contains(group) && s.Segment.mayContain(hash, &bits) {
			return at
		}
	}
	return -1
}

// Close releases the segment; its cursors must be closed before.
func (s *Segment) Close() error {
	if s.pages == nil {
		return nil
	}
	p := s.pages
	s.pages = nil
	return p.close()
}

// Cursor walks the rows of a segment in order.
type Cursor struct {
	segment *Segment
	at      int   // inline
	tree    *tree // file

	row   blockReader
	valid bool
	err   error
}

// NewCursor returns a cursor that stands nowhere.
func (s *Segment) NewCursor() (_ *Cursor, err error) {
	c := &Cursor{segment: s}
	if s.pages == nil {
		return c, nil
	}
	defer func(before bool) { err = errors.Join(err, caught(recover(), before)) }(debug.SetPanicOnFault(true))
	if c.tree, err = s.pages.bucket(blocksBucket); err != nil {
		return nil, fmt.Errorf("state segment %s: %w", s.path, err)
	}
	c.tree.leaves = s.leaves.Load()
	return c, nil
}

// Close releases the cursor.
func (c *Cursor) Close() error { return nil }

// Valid reports whether the cursor stands on a row.
func (c *Cursor) Valid() bool { return c.valid }

// Err returns the error that ended the walk, if any.
func (c *Cursor) Err() error { return c.err }

// Key returns the row's key, valid until the cursor moves.
func (c *Cursor) Key() []byte { return c.row.key }

// Value returns the row's value, valid until the cursor moves.
func (c *Cursor) Value() []byte { return c.row.value }

// Tombstone reports whether the row says that there is none.
func (c *Cursor) Tombstone() bool { return c.row.tombstone }

// Stamp returns the row's stamp, or NoStamp.
func (c *Cursor) Stamp() int64 { return c.row.stamp }

// Seek moves to the first row whose key is not less than key.
func (c *Cursor) Seek(key []byte) {
	defer c.guard(debug.SetPanicOnFault(true))
	c.valid = false
	if c.err != nil {
		return
	}
	block, ok, err := c.seekBlock(key)
	if err == nil && !ok && c.segment.bounded() && c.segment.entries > 0 {
		err = fmt.Errorf("%w: no rows", ErrCorrupt)
	}
	for landed := true; ok && err == nil; block, ok, err = c.nextBlock() {
		if err = c.enter(block, landed); err != nil {
			break
		}
		var found bool
		if found, err = c.row.seek(key); err != nil {
			break
		}
		if found {
			if b := c.row.bound; landed && c.segment.bounded() && !b.first && !bytes.Equal(c.row.key, key) && bytes.Equal(c.row.key, b.own) {
				err = fmt.Errorf("%w: the row belongs into a block before", ErrCorrupt)
				break
			}
			c.valid = true
			return
		}
		landed = false
	}
	c.fail(err)
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
	c.nextRow()
}

// nextRow moves to the first row of the next block.
func (c *Cursor) nextRow() {
	defer c.guard(debug.SetPanicOnFault(true))
	c.valid = false
	block, ok, err := c.nextBlock()
	if err != nil || !ok {
		c.fail(err)
		return
	}
	if err := c.firstRow(block, false); err != nil {
		c.fail(err)
		return
	}
	c.valid = true
}

// firstRow moves to the first row of a block.
func (c *Cursor) firstRow(block []byte, landed bool) error {
	if err := c.enter(block, landed); err != nil {
		return err
	}
	more, err := c.row.next()
	if err == nil && !more {
		err = fmt.Errorf("%w: empty block", ErrCorrupt)
	}
	return err
}

// enter stands before the rows of a block, which is the one behind the block before unless the cursor has just landed there.
func (c *Cursor) enter(block []byte, landed bool) error {
	left := c.row.bound
	if err := c.row.reset(block, c.segment.bounded()); err != nil {
		return err
	}
	if !landed && c.segment.bounded() && (left.last || !left.is(c.row.bound.own)) {
		return fmt.Errorf("%w: a block is not the one that follows", ErrCorrupt)
	}
	return nil
}

// guard is deferred by what reads the mapping.
func (c *Cursor) guard(before bool) { c.fail(caught(recover(), before)) }

func (c *Cursor) fail(err error) {
	if err != nil {
		name := c.segment.path
		if name == "" {
			name = "that travels by value"
		}
		c.err, c.valid = fmt.Errorf("state segment %s: %w", name, err), false
	}
}

// seekBlock returns the last block that does not begin after key, or the first block.
func (c *Cursor) seekBlock(key []byte) (block []byte, ok bool, err error) {
	if c.tree == nil {
		c.at = 0
		return c.nextBlock()
	}
	target := key
	if len(key) > maxBlockKey {
		target = append(bytes.Clone(key[:maxBlockKey]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	}
	k, v, _, err := c.tree.seek(target)
	// Blocks whose first keys were cut may lie after key.
	for err == nil && len(k) > maxBlockKey {
		if err = c.firstRow(v, true); err != nil || bytes.Compare(c.row.key, key) <= 0 {
			break
		}
		before, block, moved := c.tree.move(-1)
		if err = moved; err != nil || before == nil {
			break
		}
		k, v = before, block
	}
	return v, k != nil, err
}

// nextBlock returns the block behind the one that the cursor is in.
func (c *Cursor) nextBlock() (block []byte, ok bool, err error) {
	if c.tree != nil {
		k, v, err := c.tree.move(1)
		if block, ok = v, k != nil; err != nil {
			return nil, false, err
		}
	} else if ok = c.at < len(c.segment.blocks); ok {
		c.at++
		block = c.segment.blocks[c.at-1]
	}
	if inside := len(c.row.bound.own) > 0; !ok && inside && !c.row.bound.last {
		return nil, false, fmt.Errorf("%w: no block behind one that is not the last", ErrCorrupt)
	}
	return block, ok, nil
}
