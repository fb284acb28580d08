package segment

import (
	"bytes"
	"errors"

	"github.com/weir-stream/weir/internal/keygroup"
)

// Source is a segment of which the rows of some key groups count.
type Source struct {
	Segment *Segment
	Groups  keygroup.Range
}

// Merge walks several segments as one: of each key the newest row, without the rows that a newer segment's drop hides.
type Merge struct {
	sources    []mergeSource // newest first
	heap       []int         // indexes into sources, the smallest (key, index) first
	tombstones bool
	hiding     map[uint16]bool // states of which any source drops a namespace
	key        []byte
	value      []byte
	tombstone  bool
	stamp      int64
	valid      bool
	err        error
}

type mergeSource struct {
	Source
	cursor *Cursor
}

// NewMerge returns a walk over the sources, oldest first, that stands nowhere. Tombstones are walked over only on demand.
func NewMerge(sources []Source, tombstones bool) (*Merge, error) {
	m := &Merge{tombstones: tombstones, hiding: map[uint16]bool{}}
	for i := len(sources) - 1; i >= 0; i-- {
		c, err := sources[i].Segment.NewCursor()
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.sources = append(m.sources, mergeSource{Source: sources[i], cursor: c})
		for _, d := range sources[i].Segment.drops {
			m.hiding[d.State] = true
		}
	}
	return m, nil
}

// Close releases the cursors.
func (m *Merge) Close() error {
	var errs []error
	for _, s := range m.sources {
		errs = append(errs, s.cursor.Close())
	}
	m.sources, m.heap, m.valid = nil, nil, false
	return errors.Join(errs...)
}

// Valid reports whether the walk stands on a row.
func (m *Merge) Valid() bool { return m.valid }

// Err returns the error that ended the walk, if any.
func (m *Merge) Err() error { return m.err }

// Key returns the row's key, valid until the walk moves.
func (m *Merge) Key() []byte { return m.key }

// Value returns the row's value, valid until the walk moves.
func (m *Merge) Value() []byte { return m.value }

// Tombstone reports whether the row says that there is none.
func (m *Merge) Tombstone() bool { return m.tombstone }

// Stamp returns the row's stamp, or NoStamp.
func (m *Merge) Stamp() int64 { return m.stamp }

// Seek moves to the first row whose key is not less than key.
func (m *Merge) Seek(key []byte) {
	m.heap = m.heap[:0]
	var low [PrefixSize]byte
	for i, s := range m.sources {
		at := key
		if first := AppendPrefix(low[:0], s.Groups.First, 0); bytes.Compare(first, key) > 0 {
			at = first
		}
		s.cursor.Seek(at)
		if m.live(i) {
			m.heap = append(m.heap, i)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	m.settle()
}

// Next moves to the next row.
func (m *Merge) Next() {
	if m.valid {
		m.settle()
	}
}

// live reports whether source i stands on a row that counts.
func (m *Merge) live(i int) bool {
	c := m.sources[i].cursor
	if c.err != nil && m.err == nil {
		m.err = c.err
	}
	return c.valid && Group(c.row.key) <= m.sources[i].Groups.Last
}

// settle takes the first row that counts from the heap and leaves the sources behind it. A cursor that has come to another block by that still
// has the block before.
func (m *Merge) settle() {
	for m.err == nil && len(m.heap) > 0 {
		top := m.heap[0]
		c := m.sources[top].cursor
		m.key = append(m.key[:0], c.row.key...)
		m.value, m.tombstone, m.stamp = c.row.value, c.row.tombstone, c.row.stamp
		for len(m.heap) > 0 && bytes.Equal(m.sources[m.heap[0]].cursor.row.key, m.key) {
			m.advance()
		}
		if (!m.tombstone || m.tombstones) && !m.hidden(top) {
			m.valid = m.err == nil
			return
		}
	}
	m.valid = false
}

// hidden reports whether the current row, which is of source i, is hidden by the drop of a newer one.
func (m *Merge) hidden(i int) bool {
	if len(m.hiding) == 0 || !m.hiding[State(m.key)] || len(m.key) < PrefixSize+NamespaceSize {
		return false
	}
	d := Drop{State: State(m.key), Namespace: Namespace(m.key)}
	group := Group(m.key)
	for _, s := range m.sources[:i] {
		if s.Groups.Contains(group) && s.Segment.HasDrop(d) {
			return true
		}
	}
	return false
}

// advance moves the source on top of the heap.
func (m *Merge) advance() {
	top := m.heap[0]
	m.sources[top].cursor.Next()
	if !m.live(top) {
		last := len(m.heap) - 1
		m.heap[0] = m.heap[last]
		m.heap = m.heap[:last]
	}
	m.down(0)
}

func (m *Merge) less(a, b int) bool {
	order := bytes.Compare(m.sources[a].cursor.row.key, m.sources[b].cursor.row.key)
	return order < 0 || order == 0 && a < b
}

func (m *Merge) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(m.heap) {
			return
		}
		if right := child + 1; right < len(m.heap) && m.less(m.heap[right], m.heap[child]) {
			child = right
		}
		if !m.less(m.heap[child], m.heap[i]) {
			return
		}
		m.heap[i], m.heap[child] = m.heap[child], m.heap[i]
		i = child
	}
}
