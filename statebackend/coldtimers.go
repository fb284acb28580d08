package statebackend

import (
	"bytes"
	"container/heap"

	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/statebackend/segment"
)

// coldTimers knows of each key group the earliest restored timer that has not been taken yet.
type coldTimers struct {
	groups coldQueue
	err    error
}

type coldGroup struct {
	group int
	at    int64
}

// open finds the earliest timer of every key group.
func (c *coldTimers) open(ch *chain, state uint16, own keygroup.Range) error {
	m := ch.merge
	for _, group := range ch.groups(own) {
		prefix := segment.AppendPrefix(nil, group, state)
		m.Seek(prefix)
		if m.Valid() && bytes.HasPrefix(m.Key(), prefix) {
			c.groups = append(c.groups, coldGroup{group: group, at: segment.Namespace(m.Key())})
		}
		if err := m.Err(); err != nil {
			return err
		}
	}
	heap.Init(&c.groups)
	return nil
}

// next returns the earliest time.
func (c *coldTimers) next() (at int64, ok bool) {
	if len(c.groups) == 0 {
		return 0, false
	}
	return c.groups[0].at, true
}

// note tells that a timer of a group is in the segments only.
func (c *coldTimers) note(group int, at int64) {
	for i := range c.groups {
		if g := &c.groups[i]; g.group == group {
			if at < g.at {
				g.at = at
				heap.Fix(&c.groups, i)
			}
			return
		}
	}
	heap.Push(&c.groups, coldGroup{group: group, at: at})
}

// takeAtLeast is how many timers of a key group are taken at a time: looking for one costs as much as for many.
const takeAtLeast = 64

// take passes every timer up to a time to fn, and some more, and leaves them behind.
func (c *coldTimers) take(ch *chain, state uint16, upTo int64, fn func(row []byte) error) {
	m := ch.merge
	for len(c.groups) > 0 && c.groups[0].at <= upTo && c.err == nil {
		g := &c.groups[0]
		taken := 0
		prefix := segment.AppendPrefix(nil, g.group, state)
		for m.Seek(segment.AppendNamespace(prefix, g.at)); ; m.Next() {
			if !m.Valid() || !bytes.HasPrefix(m.Key(), prefix) {
				if c.err = m.Err(); c.err == nil {
					heap.Pop(&c.groups)
				}
				break
			}
			if g.at = segment.Namespace(m.Key()); g.at > upTo && taken >= takeAtLeast {
				heap.Fix(&c.groups, 0)
				break
			}
			if c.err = fn(m.Key()); c.err != nil {
				return
			}
			taken++
		}
	}
}

// coldQueue is a heap by time.
type coldQueue []coldGroup

func (q coldQueue) Len() int           { return len(q) }
func (q coldQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q coldQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *coldQueue) Push(x any) { *q = append(*q, x.(coldGroup)) }

// Pop implements heap.Interface.
func (q *coldQueue) Pop() any {
	last := len(*q) - 1
	g := (*q)[last]
	*q = (*q)[:last]
	return g
}
