package driver

import "time"

// core numbers the states of one pure core, and remembers what each operation made of each: it is carried out once.
type core[S any, Op, Out comparable] struct {
	shapes shapes
	apply  func(*S, Op) Out
	list   []*S
	index  map[string]uint32
	memo   map[memoKey[Op]]memoOut[Out]
}

type memoKey[Op comparable] struct {
	state uint32
	op    Op
}

type memoOut[Out any] struct {
	state uint32
	out   Out
}

func newCore[S any, Op, Out comparable](s shapes, first *S, apply func(*S, Op) Out) *core[S, Op, Out] {
	c := &core[S, Op, Out]{shapes: s, apply: apply, index: map[string]uint32{}, memo: map[memoKey[Op]]memoOut[Out]{}}
	c.intern(first)
	return c
}

func (c *core[S, Op, Out]) intern(s *S) uint32 {
	key := keyOf(c.shapes, s, time.Time{})
	id, ok := c.index[key]
	if !ok {
		id = uint32(len(c.list))
		c.list = append(c.list, s)
		c.index[key] = id
	}
	return id
}

// do carries an operation out on the state and replaces it by what follows.
func (c *core[S, Op, Out]) do(state *uint32, op Op) Out {
	key := memoKey[Op]{*state, op}
	r, ok := c.memo[key]
	if !ok {
		next := deepCopy(c.shapes, c.list[*state], nil)
		r.out = c.apply(next, op)
		r.state = c.intern(next)
		c.memo[key] = r
	}
	*state = r.state
	return r.out
}
