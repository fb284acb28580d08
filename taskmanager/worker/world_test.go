package worker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
)

// world is what is outside of the job: input in splits, and a system of transactions that takes the output.
type world struct {
	mu      sync.Mutex
	changed chan struct{}
	splits  [][]int64
	closed  bool

	prepared map[string][]string
	ended    map[string]string // "committed" or "aborted"
	visible  []string
	wrongs   []string
	fenced   []uint64
}

func newWorld(splits int) *world {
	return &world{
		splits: make([][]int64, splits), changed: make(chan struct{}),
		prepared: make(map[string][]string), ended: make(map[string]string),
	}
}

// feed adds numbers from to to, not included, spread over the splits.
func (w *world) feed(from, to int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v := from; v < to; v++ {
		s := int(v) % len(w.splits)
		w.splits[s] = append(w.splits[s], v)
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// end makes the input bounded.
func (w *world) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) prepare(id string, rows []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prepared[id] = rows
}

func (w *world) commit(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.ended[id] {
	case "committed":
	case "aborted":
		w.wrongs = append(w.wrongs, "commit of the aborted "+id)
	default:
		rows, ok := w.prepared[id]
		if !ok {
			w.wrongs = append(w.wrongs, "commit of the unknown "+id)
		}
		w.visible = append(w.visible, rows...)
		w.ended[id] = "committed"
	}
}

// fence aborts the prepared transactions of an attempt's subtask.
func (w *world) fence(attempt uint64, subtask int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fenced = append(w.fenced, attempt)
	for id := range w.prepared {
		if strings.HasPrefix(id, fmt.Sprintf("%d/%d/", attempt, subtask)) && w.ended[id] == "" {
			w.ended[id] = "aborted"
		}
	}
}

func (w *world) open() (ids []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.prepared {
		if w.ended[id] == "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) output() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.visible...)
}

// record is what flows through the test job.
type record struct{ n int64 }

type recordCodec struct{}

func (recordCodec) ID() string          { return "record" }
func (recordCodec) Fingerprint() uint64 { return 0 }
func (recordCodec) Append(dst []byte, r record) ([]byte, error) {
	return binary.BigEndian.AppendUint64(dst, uint64(r.n)), nil
}

func (recordCodec) Decode(src []byte) (record, error) {
	if len(src) != 8 {
		return record{}, fmt.Errorf("record of %d bytes", len(src))
	}
	return record{int64(binary.BigEndian.Uint64(src))}, nil
}

type keyCodec struct{}

func (keyCodec) ID() string { return "key" }
func (keyCodec) Append(dst []byte, k int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(k))
}

func (keyCodec) Decode(src []byte) (int64, error) { return int64(binary.BigEndian.Uint64(src)), nil }

const keys = 8

func keyOf(r record) int64 { return r.n % keys }

// source reads the splits s with s mod parallelism = subtask.
type source struct {
	operator.Base
	w         *world
	out       operator.Collector[record]
	rt        *operator.Runtime
	positions map[int]int // by split
	next      map[int]int // used by Fetch only
	wm        int64
}

type chunk struct {
	split  int
	values []int64
}

func (s *source) Input() any { return nil }

func (s *source) Open(_ context.Context, rt *operator.Runtime) error {
	s.rt, s.wm = rt, operator.MinWatermark
	s.positions, s.next = make(map[int]int), make(map[int]int)
	for split := range s.w.splits {
		if split%rt.Parallelism == rt.Subtask {
			s.positions[split], s.next[split] = 0, 0
		}
	}
	for _, r := range rt.Restored {
		for _, st := range r.GetOperatorStates() {
			for _, e := range st.GetEntries() {
				split, _ := strconv.Atoi(e.GetKey())
				if _, mine := s.positions[split]; mine {
					p := int(binary.BigEndian.Uint64(e.GetValue()))
					s.positions[split], s.next[split] = p, p
				}
			}
		}
	}
	return nil
}

func (s *source) Fetch(ctx context.Context) (any, error) {
	for {
		s.w.mu.Lock()
		changed, closed := s.w.changed, s.w.closed
		for split, at := range s.next {
			if have := s.w.splits[split]; at < len(have) {
				s.next[split] = len(have)
				values := have[at:]
				s.w.mu.Unlock()
				return &chunk{split, values}, nil
			}
		}
		s.w.mu.Unlock()
		if closed {
			return nil, io.EOF
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *source) Emit(fetched any, limit int) (bool, error) {
	c := fetched.(*chunk)
	n := min(limit, len(c.values))
	for _, v := range c.values[:n] {
		if err := s.out.Collect(record{v}, v); err != nil {
			return false, err
		}
		s.wm = max(s.wm, v)
	}
	c.values = c.values[n:]
	s.positions[c.split] += n
	s.rt.Stats.In.Add(uint64(n))
	return len(c.values) > 0, nil
}

func (s *source) CurrentWatermark(time.Time) (int64, bool) { return s.wm, false }

func (s *source) Snapshot(context.Context, operator.Barrier) (operator.Finish, error) {
	st := &snapshotv1.OperatorState{Name: "positions"}
	for split, p := range s.positions {
		st.Entries = append(st.Entries, &snapshotv1.OperatorStateEntry{
			Key: strconv.Itoa(split), Value: binary.BigEndian.AppendUint64(nil, uint64(p)),
		})
	}
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) {
		return &snapshotv1.OperatorSnapshot{OperatorStates: []*snapshotv1.OperatorState{st}}, nil
	}, nil
}

// counter counts the records of each key and emits "key:count" for each record.
type counter struct {
	operator.Base
	hooks  *hooks
	out    operator.Collector[string]
	rt     *operator.Runtime
	counts map[int64]uint64
}

func (c *counter) Input() any { return operator.Collector[record](c) }

func (c *counter) Open(ctx context.Context, rt *operator.Runtime) error {
	c.rt, c.counts = rt, make(map[int64]uint64)
	for _, r := range rt.Restored {
		for _, st := range r.GetOperatorStates() {
			for _, e := range st.GetEntries() {
				k, _ := strconv.ParseInt(e.GetKey(), 10, 64)
				if rt.KeyGroups.Contains(keygroup.Of(keyCodec{}.Append(nil, k), rt.MaxParallelism)) {
					c.counts[k] = binary.BigEndian.Uint64(e.GetValue())
				}
			}
		}
	}
	if c.hooks.open != nil {
		return c.hooks.open(ctx)
	}
	return nil
}

func (c *counter) Collect(r record, ts int64) error {
	if c.hooks.record != nil {
		if err := c.hooks.record(c, r); err != nil {
			return err
		}
	}
	k := keyOf(r)
	c.counts[k]++
	return c.out.Collect(fmt.Sprintf("%d:%d", k, c.counts[k]), ts)
}

func (c *counter) Watermark(wm int64) (int64, error) {
	if c.hooks.watermark != nil {
		c.hooks.watermark(c.rt.Subtask, wm)
	}
	return wm, nil
}

func (c *counter) EndInput() error {
	if c.hooks.end != nil {
		c.hooks.end(c.rt.Subtask)
	}
	return nil
}

func (c *counter) Snapshot(context.Context, operator.Barrier) (operator.Finish, error) {
	st := &snapshotv1.OperatorState{Name: "counts"}
	for k, n := range c.counts {
		st.Entries = append(st.Entries, &snapshotv1.OperatorStateEntry{
			Key: strconv.FormatInt(k, 10), Value: binary.BigEndian.AppendUint64(nil, n),
		})
	}
	return func(ctx context.Context) (*snapshotv1.OperatorSnapshot, error) {
		if c.hooks.finish != nil {
			if err := c.hooks.finish(ctx, st); err != nil {
				return nil, err
			}
		}
		return &snapshotv1.OperatorSnapshot{OperatorStates: []*snapshotv1.OperatorState{st}}, nil
	}, nil
}

// sink writes in transactions "attempt/subtask/checkpoint".
type sink struct {
	operator.Base
	w       *world
	rt      *operator.Runtime
	hooks   *hooks
	current []string
	pending []*snapshotv1.Committable
}

func (s *sink) Input() any { return operator.Collector[string](s) }

func (s *sink) Open(_ context.Context, rt *operator.Runtime) error { s.rt = rt; return nil }

func (s *sink) Collect(v string, _ int64) error {
	s.current = append(s.current, v)
	return nil
}

func (s *sink) Snapshot(_ context.Context, b operator.Barrier) (operator.Finish, error) {
	if len(s.current) > 0 {
		id := fmt.Sprintf("%d/%d/%d", s.rt.Attempt, s.rt.Subtask, b.Checkpoint)
		s.w.prepare(id, s.current)
		s.pending = append(s.pending, &snapshotv1.Committable{Checkpoint: b.Checkpoint, Payload: []byte(id)})
		s.current = nil
	}
	pending := append([]*snapshotv1.Committable(nil), s.pending...)
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) {
		return &snapshotv1.OperatorSnapshot{Committables: pending}, nil
	}, nil
}

func (s *sink) RecoverCommit(_ context.Context, cs []*snapshotv1.Committable) error {
	for _, c := range cs {
		s.w.commit(string(c.GetPayload()))
	}
	return nil
}

func (s *sink) RecoverAbort(_ context.Context, scope operator.Scope) error {
	for _, a := range scope.Attempts {
		for sub := scope.Subtask; sub < a.Parallelism; sub += scope.Parallelism {
			s.w.fence(a.Attempt, sub)
		}
	}
	return nil
}

func (s *sink) Commit(n uint64, done func(error)) {
	var keep, now []*snapshotv1.Committable
	for _, c := range s.pending {
		if c.GetCheckpoint() <= n {
			now = append(now, c)
		} else {
			keep = append(keep, c)
		}
	}
	s.pending = keep
	go func() {
		if s.hooks.commit != nil {
			s.hooks.commit(s.rt.Subtask)
		}
		for _, c := range now {
			s.w.commit(string(c.GetPayload()))
		}
		done(nil)
	}()
}

// hooks let tests into the counter.
type hooks struct {
	open      func(context.Context) error
	record    func(*counter, record) error
	watermark func(subtask int, wm int64)
	end       func(subtask int)
	finish    func(context.Context, *snapshotv1.OperatorState) error
	commit    func(subtask int)
}

// program is source → (by key) → counter → sink, the last two in a chain.
func program(w *world, h *hooks, sources, counters int) *operator.Program {
	chain := []graph.Operator{
		{UID: "count", Name: "count", Stateful: true, Parallelism: counters},
		{UID: "sink", Name: "sink", Stateful: true, Parallelism: counters, TransactionSlots: 4},
	}
	src := graph.Operator{UID: "src", Name: "src", Source: true, Stateful: true, Parallelism: sources}
	return &operator.Program{
		Graph: &graph.Graph{
			Name: "test", MaxParallelism: 128, Fingerprint: fmt.Sprintf("test-%d-%d", sources, counters),
			Vertices: []graph.Vertex{
				{ID: "src", Parallelism: sources, Operators: []graph.Operator{src}, Source: true},
				{ID: "count", Parallelism: counters, Operators: chain},
			},
			Edges:   []graph.VertexEdge{{ID: "src→count", FromVertex: "src", FromOperator: "src", ToVertex: "count", Partitioning: graph.Hash}},
			Chained: []graph.Edge{{ID: "count→sink", From: "count", To: "sink", Partitioning: graph.Forward}},
		},
		Factories: map[string]operator.Factory{
			"src": operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
				out, err := operator.Fanout[record](outs)
				return &source{w: w, out: out}, err
			}),
			"count": operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
				out, err := operator.Fanout[string](outs)
				return &counter{hooks: h, out: out}, err
			}),
			"sink": operator.FactoryFunc(func([]any) (operator.Instance, error) { return &sink{w: w, hooks: h}, nil }),
		},
		Edges: map[string]operator.EdgeType{"src→count": operator.NewHashEdge(recordCodec{}, keyOf, keyCodec{})},
	}
}
