package statebackend

import (
	"bytes"
	"errors"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// chain reads the restored segments on the backend's goroutine.
type chain struct {
	sources []segment.Source  // oldest first
	cursors []*segment.Cursor // one per source
	merge   *segment.Merge
	// filterLen returns the length of the part of a row's key that is in Bloom filters.
	filterLen func(row []byte) int
}

func openChain(sources []segment.Source, filterLen func(row []byte) int) (*chain, error) {
	c := &chain{sources: sources, filterLen: filterLen}
	for _, s := range sources {
		cursor, err := s.Segment.NewCursor()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		c.cursors = append(c.cursors, cursor)
	}
	var err error
	if c.merge, err = segment.NewMerge(sources, false); err != nil {
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
	for _, s := range c.sources {
		errs = append(errs, s.Segment.Close())
	}
	return errors.Join(errs...)
}

// mayContain reports whether a row, or one that begins like it, may be in the segments; false is certain.
func (c *chain) mayContain(row []byte) bool {
	group, hash := segment.Group(row), segment.Hash(row[:c.filterLen(row)])
	for _, s := range c.sources {
		if s.Groups.Contains(group) && s.Segment.MayContain(hash) {
			return true
		}
	}
	return false
}

// lookup returns the newest value of a row of a state without drops. The value is valid until the chain is closed.
func (c *chain) lookup(row []byte) (value []byte, ok bool, err error) {
	group, hash := segment.Group(row), segment.Hash(row[:c.filterLen(row)])
	for i := len(c.sources) - 1; i >= 0; i-- {
		s := c.sources[i]
		if !s.Groups.Contains(group) || !s.Segment.MayContain(hash) {
			continue
		}
		cursor := c.cursors[i]
		cursor.Seek(row)
		if err := cursor.Err(); err != nil {
			return nil, false, err
		}
		if cursor.Valid() && bytes.Equal(cursor.Key(), row) {
			return cursor.Value(), !cursor.Tombstone(), nil
		}
	}
	return nil, false, nil
}

// lookupMerged is lookup for a state with namespaces that can be dropped.
func (c *chain) lookupMerged(row []byte) (value []byte, ok bool, err error) {
	if !c.mayContain(row) {
		return nil, false, nil
	}
	c.merge.Seek(row)
	if c.merge.Valid() && bytes.Equal(c.merge.Key(), row) {
		return c.merge.Value(), true, nil
	}
	return nil, false, c.merge.Err()
}

// scan calls fn for the rows that begin with prefix until it returns false. fn must not use the chain.
func (c *chain) scan(prefix []byte, fn func(row, value []byte) (more bool, err error)) error {
	for c.merge.Seek(prefix); c.merge.Valid() && bytes.HasPrefix(c.merge.Key(), prefix); c.merge.Next() {
		if more, err := fn(c.merge.Key(), c.merge.Value()); !more || err != nil {
			return err
		}
	}
	return c.merge.Err()
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
