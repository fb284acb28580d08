package statebackend

import (
	"bytes"
	"errors"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// chain reads the restored segments on the backend's goroutine.
type chain struct {
	files   *sources
	sources []segment.Source  // oldest first
	cursors []*segment.Cursor // one per source
	merge   *segment.Merge
	asker   segment.Asker
	// held is what the segments take in memory, in bytes.
	held int64
	// filterLen returns the length of the part of a row's key that is in Bloom filters.
	filterLen func(row []byte) int
}

// openChain takes over files, also when it fails.
func openChain(files *sources, filterLen func(row []byte) int) (*chain, error) {
	c := &chain{files: files, sources: files.list, filterLen: filterLen, held: files.held()}
	for _, s := range c.sources {
		cursor, err := s.Segment.NewCursor()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.cursors = append(c.cursors, cursor)
	}
	var err error
	if c.merge, err = segment.NewMerge(c.sources, false); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close releases the segments too.
func (c *chain) close() error {
	var errs []error
	for _, cursor := range c.cursors {
		errs = append(errs, cursor.Close())
	}
	if c.merge != nil {
		errs = append(errs, c.merge.Close())
	}
	errs = append(errs, c.files.release())
	return errors.Join(errs...)
}

// mayContain reports whether a row, or one that begins like it, may be in the segments; false is certain.
func (c *chain) mayContain(row []byte) bool {
	group, hash := segment.Group(row), segment.Hash(row[:c.filterLen(row)])
	return segment.Candidate(c.sources, len(c.sources), group, hash) >= 0
}

// lookup returns the newest value of a row, unless a newer segment drops its namespace. The value is valid until the next one.
func (c *chain) lookup(row []byte, namespaces bool) (value []byte, at stamp, ok bool, err error) {
	group, hash := segment.Group(row), segment.Hash(row[:c.filterLen(row)])
	for i := len(c.sources); ; {
		after := i
		i = segment.Candidate(c.sources, i, group, hash)
		if namespaces && c.dropped(row, group, i+1, after) {
			return nil, noStamp, false, nil
		}
		if i < 0 {
			return nil, noStamp, false, nil
		}
		cursor := c.cursors[i]
		found := cursor.Find(row)
		if err := cursor.Err(); err != nil {
			return nil, noStamp, false, c.files.distrust(err)
		}
		if found {
			return cursor.Value(), stamp(cursor.Stamp()), !cursor.Tombstone(), nil
		}
		if namespaces && c.dropped(row, group, i, i+1) {
			return nil, noStamp, false, nil
		}
	}
}

// question returns the question for a row of a state without namespaces.
func (c *chain) question(row []byte) segment.Question {
	return segment.Question{Row: row, Hash: segment.Hash(row[:c.filterLen(row)])}
}

// ask answers some of many questions at once. Values are valid until it is called again.
func (c *chain) ask(questions []segment.Question) error { return c.asker.Ask(c.sources, questions) }

// dropped reports whether one of some sources hides a row's namespace in older ones.
func (c *chain) dropped(row []byte, group, from, to int) bool {
	for _, s := range c.sources[from:to] {
		if s.Groups.Contains(group) && s.Segment.HasDrop(segment.Drop{State: segment.State(row), Namespace: segment.Namespace(row)}) {
			return true
		}
	}
	return false
}

// scan calls fn for the rows that begin with prefix until it returns false. fn must not use the chain.
func (c *chain) scan(prefix []byte, fn func(row, value []byte, at stamp) (more bool, err error)) error {
	return c.scanFrom(prefix, nil, fn)
}

// scanFrom is scan from a place behind the prefix on.
func (c *chain) scanFrom(prefix, from []byte, fn func(row, value []byte, at stamp) (more bool, err error)) error {
	for c.merge.Seek(append(prefix[:len(prefix):len(prefix)], from...)); c.merge.Valid() && bytes.HasPrefix(c.merge.Key(), prefix); c.merge.Next() {
		if more, err := fn(c.merge.Key(), c.merge.Value(), stamp(c.merge.Stamp())); !more || err != nil {
			return err
		}
	}
	return c.files.distrust(c.merge.Err())
}

// groups is the part of a range of key groups that any segment has rows of.
func (c *chain) groups(own keygroup.Range) (groups []int) {
	for g := own.First; g <= own.Last; g++ {
		for _, s := range c.sources {
			if s.Groups.Contains(g) {
				groups = append(groups, g)
				break
			}
		}
	}
	return groups
}
