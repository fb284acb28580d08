package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
)

// Find moves to the row with a key and reports whether there is one.
func (c *Cursor) Find(key []byte) bool {
	if c.tree == nil || !c.segment.bounded() || len(key) > maxBlockKey {
		c.Seek(key)
		return c.valid && bytes.Equal(c.row.key, key)
	}
	return c.find(key)
}

func (c *Cursor) find(key []byte) bool {
	defer c.guard(debug.SetPanicOnFault(true))
	c.valid = false
	if c.err != nil {
		return false
	}
	first, block, _, err := c.tree.seek(key)
	switch {
	case err != nil:
	case first == nil && c.segment.entries > 0:
		err = fmt.Errorf("%w: no rows", ErrCorrupt)
	case first == nil:
	default:
		if err = c.row.reset(block, true); err == nil {
			c.valid, err = c.row.find(key)
		}
	}
	c.fail(err)
	return c.valid
}

// find moves to the row with a key, which is in this block if the file has it; anything else is damage. It compares only where the key
// may be equal, and keeps no key but the one that it finds.
func (r *blockReader) find(key []byte) (bool, error) {
	rest := r.rest
	before := 0 // length of the key of the row before
	for agreed := 0; len(rest) > 0; {
		var shared, unshared, size int
		stamp := NoStamp
		if len(rest) > 3 && (rest[0]|rest[1]|rest[2])&0x80 == 0 && rest[1] != 0 {
			shared, unshared, size = int(rest[0]), int(rest[1]), int(rest[2])
			rest = rest[3:]
		} else {
			var ok bool
			if shared, unshared, size, stamp, rest, ok = cutRow(rest); !ok {
				return false, fmt.Errorf("%w: row lengths", ErrCorrupt)
			}
		}
		stored := max(0, size-1)
		if shared > before || unshared > len(rest) || stored > len(rest)-unshared || shared+unshared < PrefixSize {
			return false, fmt.Errorf("%w: row lengths %d, %d, %d", ErrCorrupt, shared, unshared, size)
		}
		before = shared + unshared
		if shared < agreed {
			return false, nil // this row agrees less with the one before than the key does, so it is behind the key
		}
		if shared == agreed {
			for agreed < before && agreed < len(key) && rest[agreed-shared] == key[agreed] {
				agreed++
			}
			switch {
			case agreed < before && (agreed == len(key) || rest[agreed-shared] > key[agreed]):
				return false, r.notBefore(key)
			case agreed == before && agreed == len(key):
				r.key, r.shared, r.stamp, r.tombstone = append(r.key[:0], key...), shared, stamp, size == 0
				r.value = rest[unshared : unshared+stored : unshared+stored]
				r.rest = rest[unshared+stored:]
				return true, nil
			}
		}
		rest = rest[unshared+stored:]
	}
	if !r.bound.last && !r.bound.greater(key) {
		return false, fmt.Errorf("%w: the row belongs into a block behind", ErrCorrupt)
	}
	return false, nil
}

// notBefore returns an error when a key that the block does not have belongs into one before.
func (r *blockReader) notBefore(key []byte) error {
	if !r.bound.first && bytes.Compare(key, r.bound.own) < 0 {
		return fmt.Errorf("%w: the row belongs into a block before", ErrCorrupt)
	}
	return nil
}

// cutRow reads what a row begins with.
func cutRow(src []byte) (shared, unshared, size int, stamp int64, rest []byte, ok bool) {
	r := blockReader{rest: src}
	a, ok1 := r.cut()
	b, ok2 := r.cut()
	stamped := b == 0
	if stamped {
		b, ok2 = r.cut()
	}
	c, ok3 := r.cut()
	stamp = NoStamp
	if stamped {
		if len(r.rest) < 8 {
			return 0, 0, 0, 0, nil, false
		}
		stamp, r.rest = int64(binary.BigEndian.Uint64(r.rest)), r.rest[8:]
	}
	whole := uint64(len(src)) // no part is longer, but for the start that it shares, of which the row before is the bound
	if !ok1 || !ok2 || !ok3 || a > 1<<32 || b > whole || c > whole+1 {
		return 0, 0, 0, 0, nil, false
	}
	return int(a), int(b), int(c), stamp, r.rest, true
}

// greater reports whether the bound is greater than a key.
func (b bound) greater(key []byte) bool {
	n := min(len(key), b.shared)
	order := bytes.Compare(b.own[:n], key[:n])
	if order != 0 {
		return order > 0
	}
	if n < b.shared {
		return true // the key is a start of it
	}
	return bytes.Compare(b.rest, key[n:]) > 0
}

// Question is a row that is looked for. Its answer is valid until the asker is asked again.
type Question struct {
	Row  []byte
	Hash uint64 // of the part of Row that is in filters

	// Found tells that the newest segment that has the row was found. Without it there is no answer, whether or not there is a row.
	Found     bool
	Value     []byte
	Tombstone bool
	Stamp     int64

	source int // -1 once there is no answer
	leaf   node
	at     int // the element of the leaf, at first by guess
	block  []byte
}

// Asker answers many questions at a time, so that the loads of all of them wait for memory together.
type Asker struct {
	row    blockReader
	values []byte // of all answers
	// touched keeps the compiler from leaving out loads.
	touched byte
}

// Ask answers those of some questions about which the first segment that may have a row decides. Segments count up from the oldest, and
// none hides a namespace in older ones. Those that are not prepared answer nothing.
func (a *Asker) Ask(sources []Source, questions []Question) (err error) {
	defer func(before bool) { err = errors.Join(err, caught(recover(), before)) }(debug.SetPanicOnFault(true))
	a.values = a.values[:0]
	if cap(a.values) > manyBytes {
		a.values = nil
	}
	a.touchFilters(sources, questions)
	for i := range questions {
		if err := a.findLeaf(sources, &questions[i]); err != nil {
			return err
		}
	}
	touched := byte(0)
	for i := range questions {
		if q := &questions[i]; q.source >= 0 {
			k, err := q.leaf.key(q.at)
			if err != nil {
				return err
			}
			if len(k) > 0 {
				touched += k[0]
			}
		}
	}
	for i := range questions {
		q := &questions[i]
		if q.source < 0 {
			continue
		}
		if q.at, err = q.leaf.findFrom(q.at, q.Row); err != nil {
			return err
		}
		if q.block, _, err = q.leaf.value(q.at); err != nil {
			return err
		}
		for at := 0; at < min(len(q.block), 8*cacheLine); at += cacheLine {
			touched += q.block[at]
		}
	}
	a.touched += touched
	for i := range questions {
		q := &questions[i]
		if q.source < 0 {
			continue
		}
		if err = a.row.reset(q.block, true); err != nil {
			return err
		}
		if q.Found, err = a.row.find(q.Row); err != nil {
			return err
		}
		start := len(a.values)
		a.values = append(a.values, a.row.value...)
		q.Value, q.Tombstone, q.Stamp = a.values[start:], a.row.tombstone, a.row.stamp
	}
	return nil
}

// cacheLine is what a processor loads at a time, in bytes.
const cacheLine = 64

func (a *Asker) touchFilters(sources []Source, questions []Question) {
	touched := byte(0)
	for i := range questions {
		q := &questions[i]
		group := Group(q.Row)
		for j := range sources {
			if s := &sources[j]; s.Groups.Contains(group) && s.Segment.bounded() && s.Segment.filter != nil {
				touched += s.Segment.filter[lineOf(s.Segment.filter, q.Hash)]
			}
		}
	}
	a.touched += touched
}

// findLeaf finds the leaf that decides about a question, if it is known without reading other pages, and guesses at the element.
func (a *Asker) findLeaf(sources []Source, q *Question) (err error) {
	q.Found = false
	if q.source = candidate(sources, len(sources), Group(q.Row), q.Hash); q.source < 0 {
		return nil
	}
	s := sources[q.source].Segment
	l := s.leaves.Load()
	if l == nil || !s.bounded() || len(q.Row) > maxBlockKey {
		q.source = -1
		return nil
	}
	number, part, ok := l.guess(q.Row)
	if !ok {
		q.source = -1
		return nil
	}
	if q.leaf, err = s.pages.node(number); err != nil {
		return err
	}
	if !q.leaf.leaf || q.leaf.count == 0 {
		return fmt.Errorf("%w: no leaf", ErrCorrupt)
	}
	q.at = min(int(uint64(q.leaf.count)*part>>32), q.leaf.count-1)
	return nil
}
