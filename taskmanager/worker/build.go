package worker

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// builder builds the tasks of a deployment and the channels between them.
type builder struct {
	w       *Worker
	d       *deployment
	program *operator.Program
	point   *snapshot.Point
	sources int

	vertices map[string]graph.Vertex
	// inputs holds the inbox of each local task and the first channel of each of its edges.
	inputs  map[taskKey]*input
	runners map[taskKey]*runner
	copies  *copies
}

// input is the consuming side of a task.
type input struct {
	inbox *exchange.Inbox
	// channels lists what each of the inbox's channels carries.
	channels []channel
}

type channel struct {
	edge graph.VertexEdge
	id   exchange.ID
	from taskKey
}

func (b *builder) build() error {
	g := b.program.Graph
	b.vertices = make(map[string]graph.Vertex, len(g.Vertices))
	for _, v := range g.Vertices {
		b.vertices[v.ID] = v
	}
	b.inputs = make(map[taskKey]*input)
	b.runners = make(map[taskKey]*runner)
	b.copies = newCopies(b.w.cfg.Store)
	var keys []taskKey
	for _, a := range b.d.prepare.GetTasks() {
		k := taskKey{a.GetVertex(), int(a.GetSubtask())}
		v, ok := b.vertices[k.vertex]
		if !ok || k.subtask >= v.Parallelism {
			return fmt.Errorf("the plan has no task %s[%d]", k.vertex, k.subtask)
		}
		if b.runners[k] != nil {
			return fmt.Errorf("task %s[%d] is assigned twice", k.vertex, k.subtask)
		}
		b.runners[k] = &runner{done: make(chan struct{})}
		b.inputs[k] = b.input(v, k)
		keys = append(keys, k)
	}
	for _, k := range keys {
		if err := b.task(k); err != nil {
			return fmt.Errorf("build task %s[%d]: %w", k.vertex, k.subtask, err)
		}
	}
	// The data listener learns of the channels only now that their tasks can fail.
	for _, k := range keys {
		b.register(k)
	}
	return nil
}

// input lays out the channels of a task: edge by edge, producer by producer.
func (b *builder) input(v graph.Vertex, k taskKey) *input {
	in := &input{}
	for _, e := range b.program.Graph.Edges {
		if e.ToVertex != k.vertex {
			continue
		}
		first, last := 0, b.vertices[e.FromVertex].Parallelism-1
		if e.Partitioning == graph.Forward {
			first, last = k.subtask, k.subtask
		}
		for p := first; p <= last; p++ {
			in.channels = append(in.channels, channel{
				edge: e, id: exchange.ID{Edge: e.ID, Producer: p, Consumer: k.subtask}, from: taskKey{e.FromVertex, p},
			})
		}
	}
	if !v.Source {
		in.inbox = exchange.NewInbox(len(in.channels))
	}
	return in
}

// register opens the channels from other workers.
func (b *builder) register(k taskKey) {
	if b.d.server == nil {
		return
	}
	in := b.inputs[k]
	for i, c := range in.channels {
		if b.runners[c.from] == nil {
			b.d.server.Register(c.id, in.inbox, i, b.runners[k].task.Fail)
		}
	}
}

// task builds one task: its outputs, its chain from tail to head, and its readers.
func (b *builder) task(k taskKey) error {
	v, r, in := b.vertices[k.vertex], b.runners[k], b.inputs[k]
	counter := &task.Counter{}
	outputs, collectors, err := b.outputs(v, k, r, counter)
	if err != nil {
		return err
	}
	chain, err := b.chain(v, k, r, collectors)
	if err != nil {
		return err
	}
	cfg := task.Config{
		Vertex: k.vertex, Subtask: k.subtask, Parallelism: v.Parallelism,
		Chain: chain, Inbox: in.inbox, Outputs: outputs, Sent: counter,
		Snapshots: &snapshot.Writer{Store: b.w.cfg.Store, Dir: b.taskDir(k), Prefix: b.prefix(k)},
		Inspect:   b.d.prepare.GetInspectOnly(),
		Clock:     b.w.cfg.Clock,
		Logger:    b.w.cfg.Logger.With("task", k.vertex, "subtask", k.subtask),
		Reporter:  &taskReporter{w: b.w, vertex: k.vertex, subtask: k.subtask, source: v.Source},
	}
	if restore := b.d.prepare.GetRestore(); !restore.GetSavepoint() {
		cfg.Restored = restore.GetCheckpoint()
	}
	if !v.Source || len(b.program.Graph.Edges) == 0 {
		cfg.FirstRecord = b.w.restored.firstRecord
	}
	if v.Source {
		b.sources++
		if _, ok := chain[0].Instance.(operator.SourceInstance); !ok {
			return fmt.Errorf("operator %s is not a source", v.Operators[0].UID)
		}
	}
	readers := make(map[string]operator.Reader)
	for _, c := range in.channels {
		if readers[c.edge.ID] == nil {
			if readers[c.edge.ID], err = b.program.Edges[c.edge.ID].NewReader(chain[0].Instance.Input()); err != nil {
				return fmt.Errorf("edge %s: %w", c.edge.ID, err)
			}
		}
		cfg.Readers = append(cfg.Readers, readers[c.edge.ID])
		cfg.Inputs = append(cfg.Inputs, fmt.Sprintf("%s[%d]", c.from.vertex, c.from.subtask))
	}
	r.task = task.New(cfg)
	b.d.runners = append(b.d.runners, r)
	return nil
}

// outputs builds the producing ends of a task's edges; the collectors are by edge id.
func (b *builder) outputs(v graph.Vertex, k taskKey, r *runner, counter *task.Counter) ([]task.Output, map[string]any, error) {
	var outputs []task.Output
	collectors := make(map[string]any)
	for _, e := range b.program.Graph.Edges {
		if e.FromVertex != k.vertex {
			continue
		}
		edge := b.program.Edges[e.ID]
		if edge == nil {
			return nil, nil, fmt.Errorf("the program has no edge %s", e.ID)
		}
		from := indexOf(v, e.FromOperator)
		if from < 0 {
			return nil, nil, fmt.Errorf("edge %s leaves operator %s, which is not in vertex %s", e.ID, e.FromOperator, v.ID)
		}
		o := task.Output{From: from}
		wc := operator.WriterConfig{Subtask: k.subtask, MaxParallelism: b.program.Graph.MaxParallelism}
		first, last := 0, b.vertices[e.ToVertex].Parallelism-1
		if e.Partitioning == graph.Forward {
			first, last = k.subtask, k.subtask
		}
		for c := first; c <= last; c++ {
			s := b.sender(e, k, taskKey{e.ToVertex, c}, r)
			o.Senders = append(o.Senders, s)
			o.Names = append(o.Names, fmt.Sprintf("%s[%d]", e.ToVertex, c))
			wc.Channels = append(wc.Channels, counter.Channel(s))
		}
		o.Writer = edge.NewWriter(wc)
		collectors[e.ID] = o.Writer.Collector()
		outputs = append(outputs, o)
	}
	return outputs, collectors, nil
}

// sender joins two tasks: in this worker directly, else by a connection that Start makes.
func (b *builder) sender(e graph.VertexEdge, from, to taskKey, owner *runner) exchange.Sender {
	id := exchange.ID{Edge: e.ID, Producer: from.subtask, Consumer: to.subtask}
	if in := b.inputs[to]; in != nil {
		for i, c := range in.channels {
			if c.id == id {
				return exchange.NewLocal(in.inbox, i)
			}
		}
	}
	s := exchange.NewRemote(id, func(err error) { owner.task.Fail(err) })
	b.d.remote = append(b.d.remote, remoteSender{sender: s, to: to, owner: owner})
	return s
}

// chain builds the instances of a vertex from tail to head, since each needs the collectors of those behind it.
func (b *builder) chain(v graph.Vertex, k taskKey, r *runner, collectors map[string]any) ([]task.Link, error) {
	g := b.program.Graph
	chain := make([]task.Link, len(v.Operators))
	for i := range chain {
		chain[i].Parent = -1
	}
	for i := len(v.Operators) - 1; i >= 0; i-- {
		op := v.Operators[i]
		var outs []any
		for _, e := range g.Chained {
			if e.From != op.UID {
				continue
			}
			to := indexOf(v, e.To)
			if to <= i {
				return nil, fmt.Errorf("operator %s is chained to %s, which does not follow it", e.From, e.To)
			}
			chain[to].Parent = i
			outs = append(outs, chain[to].Instance.Input())
		}
		for _, e := range g.Edges {
			if e.FromVertex == v.ID && e.FromOperator == op.UID {
				outs = append(outs, collectors[e.ID])
			}
		}
		factory := b.program.Factories[op.UID]
		if factory == nil {
			return nil, fmt.Errorf("the program has no operator %s", op.UID)
		}
		instance, err := factory.New(outs)
		if err != nil {
			return nil, fmt.Errorf("operator %s: %w", op.UID, err)
		}
		rt, err := b.runtime(v, k, i)
		if err != nil {
			return nil, err
		}
		chain[i].Instance, chain[i].Runtime = instance, rt
		restored, committables := b.point.Operator(op.UID, k.subtask, v.Parallelism)
		rt.Restored = restored
		if !b.d.prepare.GetRestore().GetSettled() || b.d.prepare.GetInspectOnly() {
			chain[i].Committables = committables
			if groups := b.point.Transactions(op.UID, k.subtask, v.Parallelism); kept(groups) {
				chain[i].Restored = groups
			}
			r.committable += len(committables)
		}
	}
	return chain, nil
}

// kept reports whether what transactions wrote is kept.
func kept(groups []operator.Restored) bool {
	return slices.ContainsFunc(groups, func(g operator.Restored) bool {
		return slices.ContainsFunc(g, func(tx operator.RestoredTransaction) bool { return len(tx.Committable.GetRecords()) > 0 })
	})
}

func (b *builder) runtime(v graph.Vertex, k taskKey, i int) (*operator.Runtime, error) {
	p, g, op := b.d.prepare, b.program.Graph, v.Operators[i]
	dir := filepath.Join(b.taskDir(k), strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the scratch directory of operator %s: %w", op.UID, err)
	}
	rt := &operator.Runtime{
		ClusterID: p.GetClusterId(), JobID: p.GetJobId(), JobName: p.GetJobName(), Attempt: p.GetAttempt(),
		Vertex: v.ID, Operator: op, Subtask: k.subtask, Parallelism: v.Parallelism,
		MaxParallelism: g.MaxParallelism,
		KeyGroups:      keygroup.RangeOf(k.subtask, v.Parallelism, g.MaxParallelism),
		Checkpoints:    g.Checkpoints,
		Clock:          b.w.cfg.Clock,
		Logger:         b.w.cfg.Logger.With("operator", op.UID, "subtask", k.subtask),
		Stats:          &operator.Stats{},
		Dir:            dir,
		Segments:       b.copies.share(),
		StateMemory:    stateMemory(p.GetStateMemory(), g),

		AllowDroppedState: p.GetRestore().GetAllowDroppedState(),
		SettleOnly:        p.GetSettleOnly(),
		Losses:            operator.LossPolicy(p.GetRestore().GetLossPolicy()),
	}
	rt.Stats.Lag.Store(-1)
	return rt, nil
}

// stateMemory is an instance's part of the memory of its slot, which has one task of each vertex.
func stateMemory(perSlot uint64, g *graph.Graph) int64 {
	keyed := 0
	for _, v := range g.Vertices {
		for _, op := range v.Operators {
			if op.Stateful && !op.Source && !op.Sink {
				keyed++
			}
		}
	}
	return int64(perSlot / uint64(max(1, keyed)))
}

func (b *builder) taskDir(k taskKey) string {
	return filepath.Join(b.d.dir, url.PathEscape(k.vertex)+"-"+strconv.Itoa(k.subtask))
}

func (b *builder) prefix(k taskKey) string {
	p := b.d.prepare
	return snapshot.Prefix(p.GetClusterId(), p.GetJobId(), p.GetAttempt(), k.vertex, k.subtask)
}

func indexOf(v graph.Vertex, uid string) int {
	for i, op := range v.Operators {
		if op.UID == uid {
			return i
		}
	}
	return -1
}
