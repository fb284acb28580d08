package statebackend

import (
	"cmp"
	"slices"
	"unsafe"
)

// panesState is Panes as the backend sees it.
type panesState[K comparable, A any] struct{ *Panes[K, A] }

func (s panesState[K, A]) restore() error { return s.findPanes() }
func (s panesState[K, A]) loaded()        {}

// freeze is linear in the number of panes, not of keys.
func (s panesState[K, A]) freeze() {
	f := frozenPanes[K, A]{epoch: s.core.epoch, dropped: s.dropped}
	s.dropped = nil
	for at, p := range s.panes {
		if p.dirty.len() > 0 {
			f.changed = append(f.changed, changedPane[K, A]{at: at, dirty: p.dirty, chunks: p.rows.chunks})
			p.dirty = dirtySet[uint32]{}
		}
	}
	if len(f.dropped)+len(f.changed) > 0 {
		s.frozen = append(s.frozen, f)
	}
}

func (s panesState[K, A]) release() {
	var kept []frozenPanes[K, A]
	for _, f := range s.frozen {
		if f.epoch > s.core.completed {
			kept = append(kept, f)
		}
	}
	s.frozen = kept
}

func (s panesState[K, A]) count() (n int) {
	for _, p := range s.panes {
		n += p.rows.len()
	}
	return n
}

func (s panesState[K, A]) bytes(perRow int64) int64 {
	return int64(s.held())*(perRow+rowOverhead[K, A]()) + int64(len(s.panes))*paneOverhead[K, A]()
}

// paneOverhead is what a pane costs besides the rows in it: itself with the smallest index, lists and chunk, its place in a map and in an order.
func paneOverhead[K comparable, A any]() int64 {
	return int64(unsafe.Sizeof(pane[K, A]{})) + leastPart*8 + 300 + 2*int64(unsafe.Sizeof(cell[K, A]{}))
}

// What is expected is about the pane of the record before.
func (s panesState[K, A]) expects() bool { return s.last != nil && s.last.rows.large() }

func (s panesState[K, A]) expect(keys []K) {
	s.core.absent = s.last.rows.fetch(keys, s.core.absent[:0])
}

func (s panesState[K, A]) held() int { return s.count() }

// evict goes through the panes in an arbitrary order.
func (s panesState[K, A]) evict(want int, upTo uint64, visits int) (evicted int) {
	for _, p := range s.panes {
		if evicted >= want || visits <= 0 {
			break
		}
		n := 0
		p.rows.sample(visits, func(ref uint32, e *cell[K, A]) bool {
			visits--
			if evictable(e, upTo) {
				p.rows.remove(ref, e, s.core.released)
				n++
			}
			return evicted+n < want
		})
		// Rows of the pane are in the segments from now on, all of them: what was dropped before it began is hidden there.
		p.cold = p.cold || n > 0
		evicted += n
	}
	return evicted
}

func (s panesState[K, A]) changes(from uint64) changes {
	return &paneChanges[K, A]{s: s.Panes, frozen: s.frozen, from: from}
}

// paneChanges are the versions of some epochs, without those of panes that were dropped later.
type paneChanges[K comparable, A any] struct {
	s      *Panes[K, A]
	frozen []frozenPanes[K, A]
	from   uint64
	refs   []uint32
	panes  []changedRun[K, A]
	run    int // of the version that appendTo was called for last
	gone   []int64
}

// changedRun is versions of one pane that follow each other, up to one.
type changedRun[K comparable, A any] struct {
	at     int64
	to     int
	chunks chunks[K, A]
}

func (c *paneChanges[K, A]) collect() int {
	dropped := map[int64]bool{}
	written := map[int64]bool{}
	for i := len(c.frozen) - 1; i >= 0 && c.frozen[i].epoch > c.from; i-- {
		for _, p := range c.frozen[i].changed {
			if dropped[p.at] {
				continue
			}
			c.refs = appendRefs(c.refs, &p.dirty)
			c.panes = append(c.panes, changedRun[K, A]{p.at, len(c.refs), p.chunks})
		}
		for _, d := range c.frozen[i].dropped {
			dropped[d.at] = true
			if d.born <= c.from && !written[d.at] {
				written[d.at] = true
				c.gone = append(c.gone, d.at)
			}
		}
	}
	return len(c.refs)
}

func (c *paneChanges[K, A]) appendTo(dst []byte, i int, value bool) (_ []byte, key int, _ fate, err error) {
	for i >= c.panes[c.run].to {
		c.run++
	}
	p, start := &c.panes[c.run], len(dst)
	e := p.chunks.at(c.refs[i])
	dst = c.s.b.namespaceRow(dst, c.s.d, p.at, e.key)
	key = len(dst) - start
	if value {
		dst, err = c.s.codec.Append(dst, e.value)
	}
	return dst, key, alive, err
}

func (c *paneChanges[K, A]) stamp(int) stamp { return noStamp }

func (c *paneChanges[K, A]) appendValue(dst []byte, i int) ([]byte, error) {
	run, _ := slices.BinarySearchFunc(c.panes, i+1, func(p changedRun[K, A], to int) int { return cmp.Compare(p.to, to) })
	return c.s.codec.Append(dst, c.panes[run].chunks.at(c.refs[i]).value)
}

func (c *paneChanges[K, A]) drops() []int64 { return c.gone }

func (s panesState[K, A]) newBatch() batch { return &paneBatch[K, A]{s: s.Panes} }

// paneBatch is decoded accumulators on their way into their panes.
type paneBatch[K comparable, A any] struct {
	s      *Panes[K, A]
	ats    []int64
	keys   []K
	values []A
}

func (b *paneBatch[K, A]) decode(row, value []byte, _ stamp) error {
	at, k, err := b.s.b.cutNamespaceRow(row)
	if err != nil {
		return err
	}
	a, err := b.s.codec.Decode(value)
	if err != nil {
		return err
	}
	b.ats, b.keys, b.values = append(b.ats, at), append(b.keys, k), append(b.values, a)
	return nil
}

// apply skips panes that were dropped since, even when there is a new one.
func (b *paneBatch[K, A]) apply() {
	for i, k := range b.keys {
		p := b.s.panes[b.ats[i]]
		if p != nil && p.cold && !p.rows.has(k) {
			_, e := p.rows.add(k, b.s.core.released)
			e.value = b.values[i]
			b.s.core.added()
		}
	}
}
