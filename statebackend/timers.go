package statebackend

import (
	"container/heap"
	"fmt"
	"unsafe"

	"github.com/weir-stream/weir/statebackend/segment"
)

// Timers is a set of pairs of time and key, in order of time.
type Timers[K comparable] struct {
	t     table[timer[K], struct{}]
	b     *Backend[K]
	d     *declaration
	queue timerQueue[K]
	cold  coldTimers
}

type timer[K comparable] struct {
	at int64
	k  K
}

// NewTimers declares a state.
func NewTimers[K comparable](b *Backend[K], name string) *Timers[K] {
	d := &declaration{name: name, kind: kindTimer, keyCodec: b.key.ID()}
	s := &Timers[K]{b: b, d: d, t: table[timer[K], struct{}]{
		core:      b.core,
		rows:      newRows[timer[K], struct{}](),
		appendRow: func(dst []byte, t timer[K]) []byte { return b.namespaceRow(dst, d, t.at, t.k) },
		decodeRow: func(row []byte) (timer[K], error) {
			at, k, err := b.cutNamespaceRow(row)
			return timer[K]{at, k}, err
		},
		encode: func(dst []byte, _ struct{}) ([]byte, error) { return dst, nil },
		decode: func(value []byte, _ stamp) (none struct{}, err error) {
			if len(value) > 0 {
				err = fmt.Errorf("%w: timer with a value", segment.ErrCorrupt)
			}
			return none, err
		},
	}}
	b.core.declare(d, timersState[K]{table: &s.t, s: s})
	return s
}

// Add sets a timer at a time in milliseconds since the epoch; setting it again changes nothing.
func (s *Timers[K]) Add(at int64, k K) error {
	t := timer[K]{at, k}
	if _, e := s.t.rows.find(t); e != nil && !e.deleted {
		return nil
	}
	s.t.edit(t)
	s.push(t)
	return nil
}

// Delete removes a timer if it is set.
func (s *Timers[K]) Delete(at int64, k K) error {
	s.t.delete(timer[K]{at, k})
	return nil
}

// Next returns the earliest time for which a timer is set.
func (s *Timers[K]) Next() (at int64, ok bool) {
	for {
		head, hot := s.head()
		at, cold := s.cold.next()
		if !cold || hot && head.at <= at {
			return head.at, hot
		}
		if !s.warm(at) {
			return at, true // Due reports the error
		}
	}
}

// Due removes and then fires every timer up to upTo, in order of time; timers added meanwhile and due fire too.
func (s *Timers[K]) Due(upTo int64, fire func(at int64, k K) error) error {
	for {
		at, ok := s.Next()
		if s.cold.err != nil {
			return s.cold.err
		}
		if !ok || at > upTo {
			return nil
		}
		t := heap.Pop(&s.queue).(timer[K])
		s.t.delete(t)
		if err := fire(t.at, t.k); err != nil {
			return err
		}
	}
}

// push puts a timer in the queue. Removed timers stay there until their time; too many of them are cleared out.
func (s *Timers[K]) push(t timer[K]) {
	if len(s.queue) > 2*s.t.live+1024 {
		s.queue = s.queue[:0]
		s.t.rows.each(func(_ uint32, e *cell[timer[K], struct{}]) bool {
			if !e.deleted {
				s.queue = append(s.queue, e.key)
			}
			return true
		})
		heap.Init(&s.queue)
		return
	}
	heap.Push(&s.queue, t)
}

// head returns the first timer of the queue that is still set.
func (s *Timers[K]) head() (t timer[K], ok bool) {
	for len(s.queue) > 0 {
		if _, e := s.t.rows.find(s.queue[0]); e != nil && !e.deleted {
			return s.queue[0], true
		}
		heap.Pop(&s.queue)
	}
	return t, false
}

// warm takes the restored timers up to a time into the table; false means an error, kept for Due.
func (s *Timers[K]) warm(upTo int64) bool {
	s.cold.take(s.t.core.chain, s.d.id, upTo, func(row []byte) error {
		t, err := s.t.decodeRow(row)
		if err != nil {
			return s.t.core.decodeError(row, err)
		}
		if !s.t.rows.has(t) {
			s.t.insert(t, struct{}{})
			s.push(t)
		}
		return nil
	})
	return s.cold.err == nil
}

// timerQueue is a heap by time.
type timerQueue[K comparable] []timer[K]

func (q timerQueue[K]) Len() int           { return len(q) }
func (q timerQueue[K]) Less(i, j int) bool { return q[i].at < q[j].at }
func (q timerQueue[K]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *timerQueue[K]) Push(x any) { *q = append(*q, x.(timer[K])) }

// Pop implements heap.Interface.
func (q *timerQueue[K]) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	clear((*q)[last:])
	*q = (*q)[:last]
	return t
}

// timersState is Timers as the backend sees it.
type timersState[K comparable] struct {
	*table[timer[K], struct{}]
	s *Timers[K]
}

func (s timersState[K]) restore() error {
	return s.s.cold.open(s.core.chain, s.s.d.id, s.core.cfg.KeyGroups)
}

// evict takes timers that are far away in time, and leaves their key groups' earliest times behind.
func (s timersState[K]) evict(want int, upTo uint64, visits int) (evicted int) {
	const sample = 32
	var times []int64
	s.rows.sample(sample, func(_ uint32, e *cell[timer[K], struct{}]) bool {
		times = append(times, e.key.at)
		return true
	})
	if len(times) == 0 {
		return 0
	}
	far := upperHalf(times)
	s.rows.sample(visits, func(ref uint32, e *cell[timer[K], struct{}]) bool {
		if e.key.at >= far && evictable(e, upTo) {
			t := e.key
			s.rows.remove(ref, e, s.core.released)
			s.live--
			evicted++
			row := s.appendRow(s.core.scratch[:0], t)
			s.core.scratch = row[:0]
			s.s.cold.note(segment.Group(row), t.at)
		}
		return evicted < want
	})
	return evicted
}

func (s timersState[K]) bytes(perRow int64) int64 {
	return s.table.bytes(perRow) + int64(cap(s.s.queue))*int64(unsafe.Sizeof(timer[K]{}))
}

func (s timersState[K]) loaded() { s.s.cold = coldTimers{} }

func (s timersState[K]) newBatch() batch {
	return &timerBatch[K]{tableBatch: tableBatch[timer[K], struct{}]{t: s.table}, s: s.s}
}

type timerBatch[K comparable] struct {
	tableBatch[timer[K], struct{}]
	s *Timers[K]
}

func (b *timerBatch[K]) apply() {
	for _, t := range b.keys {
		if !b.t.rows.has(t) {
			b.t.insert(t, struct{}{})
			b.s.push(t)
		}
	}
}
