package statebackend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weir-stream/weir/statebackend/segment"
)

// delta is the changed rows of a snapshot, encoded, by key group. Each version is visited once, in the order in which versions lie in
// memory; what is sorted and written lies close together.
type delta struct {
	f       *Frozen
	groups  []groupDelta // by key group, from the first one of the instance on
	scratch []byte
	// rows and bytes are of what is encoded with its value, later is the number of the other rows.
	rows, bytes, later uint64
	sorter             sorter
}

// groupDelta is the changed rows of one key group, state by state in order of the states' numbers.
type groupDelta struct {
	data []byte
	rows []changedRow
}

// changedRow is version i of a state, whose key, and value if it has one, are at a place of its group's data.
type changedRow struct {
	// heads are the bytes of the key behind group and state, as many as there are, as numbers that sort as they do.
	heads      [2]uint64
	at         uint64
	key, value uint32 // lengths
	i          uint32
	state      uint16
	fate       fate
	unencoded  bool // the value is encoded as it is written
}

// fate is what a snapshot says of a row.
type fate uint8

const (
	alive fate = iota
	// buried: there is no row, and segments before may have one.
	buried
	// neverWas: there is no row, nor is there one in segments before.
	neverWas
)

func (g *groupDelta) key(r *changedRow) []byte {
	return g.data[r.at : r.at+uint64(r.key) : r.at+uint64(r.key)]
}

func (g *groupDelta) encodedValue(r *changedRow) []byte {
	start := r.at + uint64(r.key)
	return g.data[start : start+uint64(r.value)]
}

// writeDelta writes the changed rows in order and returns the dropped namespaces.
func (f *Frozen) writeDelta(ctx context.Context, out *output) (drops []segment.Drop, err error) {
	d := delta{f: f, groups: make([]groupDelta, f.core.cfg.KeyGroups.Len())}
	for _, state := range f.core.statesInOrder() {
		if err := d.encode(ctx, state); err != nil {
			return nil, err
		}
	}
	if len(f.before.segments) == 0 {
		size := d.bytes + d.later*(d.bytes/max(1, d.rows))
		out.piece = f.core.limits.piece(size, size)
	}
	for i := range d.groups {
		if err := d.writeGroup(ctx, &d.groups[i], out); err != nil {
			return nil, err
		}
		d.groups[i] = groupDelta{}
	}
	for i, ch := range f.changes {
		for _, namespace := range ch.drops() {
			drops = append(drops, segment.Drop{State: f.core.states[i].id, Namespace: namespace})
		}
	}
	return drops, nil
}

// statesInOrder returns the states, by their place among all, in order of their numbers in segments.
func (c *core) statesInOrder() []int {
	order := make([]int, len(c.states))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(c.states[a].id, c.states[b].id) })
	return order
}

// encode adds the changes of a state.
func (d *delta) encode(ctx context.Context, state int) error {
	core, ch := d.f.core, d.f.changes[state]
	n := ch.collect()
	if each := n / len(d.groups); each > 0 {
		some := each + each/8
		size := some * int(core.perRow(core.states[state]))
		for i := range d.groups {
			g := &d.groups[i]
			g.rows = slices.Grow(g.rows, some)
			if size < int(core.limits.delta)/len(d.groups) {
				g.data = slices.Grow(g.data, size+size/8)
			}
		}
	}
	for i := range n {
		if i%4096 == 0 && ctx.Err() != nil {
			return &StorageError{Op: "write state", Err: ctx.Err()}
		}
		later := d.bytes >= core.limits.delta
		row, key, fate, err := ch.appendTo(d.scratch[:0], i, !later)
		if err != nil {
			return fmt.Errorf("state %q: encode a value: %w", core.states[state].name, err)
		}
		d.scratch = row
		group := segment.Group(row)
		if !core.cfg.KeyGroups.Contains(group) {
			return fmt.Errorf("state %q: %w: row %x is in key group %d, this subtask has %d to %d; is the key function deterministic?",
				core.states[state].name, ErrForeignKey, row[:key], group, core.cfg.KeyGroups.First, core.cfg.KeyGroups.Last)
		}
		if later = later && fate == alive; later {
			d.later++
		} else {
			d.rows++
			d.bytes += uint64(len(row))
		}
		g := &d.groups[group-core.cfg.KeyGroups.First]
		g.rows = append(g.rows, changedRow{
			heads: headsOf(row[segment.PrefixSize:key]), at: uint64(len(g.data)), key: uint32(key), value: uint32(len(row) - key), i: uint32(i),
			state: uint16(state), fate: fate, unencoded: later,
		})
		g.data = append(g.data, row...)
	}
	return nil
}

// headsOf returns the first bytes of b as two numbers. What is shorter may come out as what is longer and goes on with zeros.
func headsOf(b []byte) (heads [2]uint64) {
	if len(b) >= 16 {
		return [2]uint64{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}
	}
	var padded [16]byte
	copy(padded[:], b)
	return [2]uint64{binary.BigEndian.Uint64(padded[:]), binary.BigEndian.Uint64(padded[8:])}
}

// writeGroup writes the rows of a key group.
func (d *delta) writeGroup(ctx context.Context, g *groupDelta, out *output) error {
	for from := 0; from < len(g.rows); {
		if ctx.Err() != nil {
			return &StorageError{Op: "write state", Err: ctx.Err()}
		}
		to := from + 1
		for to < len(g.rows) && g.rows[to].state == g.rows[from].state {
			to++
		}
		g.sort(&d.sorter, g.rows[from:to])
		if err := d.writeRows(g, g.rows[from:to], out); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// sort orders rows of one state by key, and those with one key by their number, which is the newest first. The sorter has the order.
func (g *groupDelta) sort(s *sorter, rows []changedRow) {
	var differ [2]uint64
	sizes := uint32(0) // 0 when all keys have one length
	for i := range rows {
		differ[0] |= rows[i].heads[0] ^ rows[0].heads[0]
		differ[1] |= rows[i].heads[1] ^ rows[0].heads[1]
		sizes |= rows[i].key ^ rows[0].key
	}
	s.begin(len(rows))
	for h := 1; h >= 0; h-- {
		if differ[h] == 0 {
			continue
		}
		for i := range s.items {
			s.items[i].head = rows[s.items[i].n].heads[h]
		}
		s.sort(differ[h])
	}
	if sizes == 0 && rows[0].key <= segment.PrefixSize+16 {
		return // the heads are all there is
	}
	for i := 0; i < len(s.items); {
		end := i + 1
		for end < len(s.items) && rows[s.items[end].n].heads == rows[s.items[i].n].heads {
			end++
		}
		if end > i+1 {
			slices.SortFunc(s.items[i:end], func(a, b item) int {
				return cmp.Or(bytes.Compare(g.key(&rows[a.n]), g.key(&rows[b.n])), cmp.Compare(a.n, b.n))
			})
		}
		i = end
	}
}

// writeRows writes rows of one state in the order that the sorter has.
func (d *delta) writeRows(g *groupDelta, rows []changedRow, out *output) error {
	state := d.f.core.states[rows[0].state]
	ch := d.f.changes[rows[0].state]
	var last *changedRow
	var written, size int
	for _, it := range d.sorter.items {
		r := &rows[it.n]
		key := g.key(r)
		if last != nil && last.heads == r.heads && bytes.Equal(key, g.key(last)) {
			continue
		}
		last = r
		if r.fate == neverWas {
			continue
		}
		value := g.encodedValue(r)
		if r.unencoded {
			var err error
			if value, err = ch.appendValue(d.scratch[:0], int(r.i)); err != nil {
				return fmt.Errorf("state %q: encode a value: %w", state.name, err)
			}
			d.scratch = value
		}
		if err := out.add(key, value, r.fate == buried, int64(ch.stamp(int(r.i)))); err != nil {
			return err
		}
		written++
		size += len(key) + len(value)
	}
	state.measure(written, size)
	return nil
}
