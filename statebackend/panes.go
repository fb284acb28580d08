package statebackend

import (
	"bytes"
	"slices"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/statebackend/segment"
)

// Panes is a state with accumulators per pane and key. A pane is found and dropped as a whole.
type Panes[K comparable, A any] struct {
	core  *core
	b     *Backend[K]
	d     *declaration
	codec codec.Codec[A]
	clone func(A) (A, error) // nil: assignment copies
	panes map[int64]*pane[K, A]
	order []int64 // ascending
	last  *pane[K, A]
	// dropped are the panes dropped in the current epoch.
	dropped []droppedPane
	frozen  []frozenPanes[K, A]
}

type pane[K comparable, A any] struct {
	at    int64
	rows  rows[K, A]
	dirty dirtySet[uint32]
	born  uint64 // epoch since which the pane has existed; 0 when restored segments have it
	cold  bool   // restored segments may have rows that are not in memory
}

type droppedPane struct {
	at   int64
	born uint64
}

type frozenPanes[K comparable, A any] struct {
	epoch   uint64
	dropped []droppedPane
	changed []changedPane[K, A]
}

type changedPane[K comparable, A any] struct {
	at     int64
	dirty  dirtySet[uint32]
	chunks chunks[K, A]
}

// NewPanes declares a state. Snapshots that have it under one of the former names are read as well.
func NewPanes[K comparable, A any](b *Backend[K], name string, c codec.Codec[A], former ...string) *Panes[K, A] {
	d := &declaration{
		name: name, kind: kindPanes, keyCodec: b.key.ID(), valueCodec: c.ID(), fingerprint: c.Fingerprint(), valueSchema: codec.Schema(c), former: former,
	}
	s := &Panes[K, A]{core: b.core, b: b, d: d, codec: c, clone: cloner(c), panes: map[int64]*pane[K, A]{}}
	b.core.declare(d, panesState[K, A]{s})
	return s
}

// Acquire returns the accumulator of k in a pane to be changed in place; it is the zero value when existed is false. The pointer is
// valid until the next call on the backend.
func (s *Panes[K, A]) Acquire(at int64, k K) (acc *A, existed bool, err error) {
	p := s.pane(at)
	if p == nil {
		p = s.newPane(at, s.core.epoch)
	}
	ref, e, err := s.find(p, k)
	if err != nil {
		return nil, false, err
	}
	if e == nil {
		ref, e = p.rows.add(k, s.core.released)
		s.mark(p, ref, e)
		return &e.value, false, nil
	}
	if uint64(e.epoch) == s.core.epoch {
		return &e.value, true, nil
	}
	if uint64(e.epoch) > s.core.released {
		value := e.value
		if s.clone != nil {
			if value, err = s.clone(e.value); err != nil {
				return nil, false, err
			}
		}
		ref, e = p.rows.succeed(ref, e, s.core.released)
		e.value = value
	}
	s.mark(p, ref, e)
	return &e.value, true, nil
}

// Get returns the accumulator of k in a pane, which must not be modified.
func (s *Panes[K, A]) Get(at int64, k K) (a A, ok bool, err error) {
	p := s.pane(at)
	if p == nil {
		return a, false, nil
	}
	_, e, err := s.find(p, k)
	if e == nil || err != nil {
		return a, false, err
	}
	return e.value, true, nil
}

// Each calls fn for every key of a pane, in no particular order, until it returns an error. The accumulators must not be modified.
func (s *Panes[K, A]) Each(at int64, fn func(k K, a A) error) (err error) {
	p := s.pane(at)
	if p == nil {
		return nil
	}
	s.core.memory.held = true
	defer func() { s.core.memory.held = false }()
	p.rows.each(func(_ uint32, e *cell[K, A]) bool {
		err = fn(e.key, e.value)
		return err == nil
	})
	if err != nil {
		return err
	}
	return s.scan(p, fn)
}

// Drop removes a pane with everything in it.
func (s *Panes[K, A]) Drop(at int64) error {
	p := s.pane(at)
	if p == nil {
		return nil
	}
	delete(s.panes, at)
	s.last = nil
	if i, ok := slices.BinarySearch(s.order, at); ok {
		s.order = slices.Delete(s.order, i, i+1)
	}
	if p.born < s.core.epoch {
		s.dropped = append(s.dropped, droppedPane{at: at, born: p.born})
	}
	return nil
}

// First returns the lowest pane.
func (s *Panes[K, A]) First() (at int64, ok bool) {
	if len(s.order) == 0 {
		return 0, false
	}
	return s.order[0], true
}

// All returns the panes in ascending order.
func (s *Panes[K, A]) All() []int64 { return slices.Clone(s.order) }

// pane returns a pane, nil when there is none. Records mostly fall into the pane of the record before.
func (s *Panes[K, A]) pane(at int64) *pane[K, A] {
	s.core.tick()
	if s.last != nil && s.last.at == at {
		return s.last
	}
	p := s.panes[at]
	if p != nil {
		s.last = p
	}
	return p
}

func (s *Panes[K, A]) newPane(at int64, born uint64) *pane[K, A] {
	p := &pane[K, A]{at: at, rows: newRows[K, A](), born: born}
	s.panes[at] = p
	s.last = p
	i, _ := slices.BinarySearch(s.order, at)
	s.order = slices.Insert(s.order, i, at)
	return p
}

// mark makes e a version of the current epoch.
func (s *Panes[K, A]) mark(p *pane[K, A], ref uint32, e *cell[K, A]) {
	e.epoch = uint32(s.core.epoch)
	p.dirty.add(ref)
	s.core.added()
}

// find returns the version of k's accumulator, nil when there is none.
func (s *Panes[K, A]) find(p *pane[K, A], k K) (uint32, *cell[K, A], error) {
	if ref, e := p.rows.find(k); e != nil {
		if e.use < 1 {
			e.use++
		}
		return ref, e, nil
	}
	if !p.cold || s.core.mode == resident {
		return 0, nil, nil
	}
	return s.read(p, k)
}

// read looks for an accumulator that is not in memory in the segments.
func (s *Panes[K, A]) read(p *pane[K, A], k K) (uint32, *cell[K, A], error) {
	row := s.b.namespaceRow(s.core.scratch[:0], s.d, p.at, k)
	s.core.scratch = row[:0]
	value, _, ok, err := s.core.chain.lookup(row, true)
	if err != nil || !ok {
		return 0, nil, err
	}
	a, err := s.codec.Decode(value)
	if err != nil {
		return 0, nil, s.core.decodeError(row, err)
	}
	ref, e := p.rows.add(k, s.core.released)
	e.value = a
	s.core.added()
	return ref, e, nil
}

// scan calls fn for the rows of a pane that are in segments only. It leaves them there: a pane may be larger than memory.
func (s *Panes[K, A]) scan(p *pane[K, A], fn func(k K, a A) error) error {
	if !p.cold || s.core.mode == resident {
		return nil
	}
	for _, group := range s.core.chain.groups(s.core.cfg.KeyGroups) {
		prefix := segment.AppendNamespace(segment.AppendPrefix(nil, group, s.d.id), p.at)
		err := s.core.chain.scan(prefix, func(row, value []byte, _ stamp) (bool, error) {
			_, k, err := s.b.cutNamespaceRow(row)
			if err != nil {
				return false, s.core.decodeError(row, err)
			}
			if p.rows.has(k) {
				return true, nil
			}
			a, err := s.codec.Decode(value)
			if err != nil {
				return false, s.core.decodeError(row, err)
			}
			return true, fn(k, a)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// findPanes makes the panes that the restored segments have, by leaping from pane to pane in each key group.
func (s *Panes[K, A]) findPanes() error {
	m := s.core.chain.merge
	for _, group := range s.core.chain.groups(s.core.cfg.KeyGroups) {
		prefix := segment.AppendPrefix(nil, group, s.d.id)
		m.Seek(prefix)
		for m.Valid() && bytes.HasPrefix(m.Key(), prefix) {
			if len(m.Key()) < segment.PrefixSize+segment.NamespaceSize {
				return s.core.decodeError(m.Key(), segment.ErrCorrupt)
			}
			at := segment.Namespace(m.Key())
			if s.panes[at] == nil {
				s.newPane(at, 0).cold = true
			}
			if at == 1<<63-1 {
				break
			}
			m.Seek(segment.AppendNamespace(prefix[:segment.PrefixSize:segment.PrefixSize], at+1))
		}
		if err := m.Err(); err != nil {
			return err
		}
	}
	return nil
}
