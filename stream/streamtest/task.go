package streamtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
)

// mark is how far event time has come somewhere.
type mark struct {
	wm   int64
	idle bool
}

// link is one operator of a task's chain.
type link struct {
	op        graph.Operator
	instance  operator.Instance
	parent    int // in the chain; -1 for the first
	delivered int64
	upIdle    bool
	out       mark
}

// task is one subtask of a vertex.
type task struct {
	job     *Job
	vertex  graph.Vertex
	subtask int
	links   []link
	outputs []output
	inputs  []mark // one per channel
	readers []operator.Reader
	queue   []message
	in      mark // combined
	ended   bool
}

// message is an encoded batch that has come on a channel.
type message struct {
	channel int
	data    []byte
}

// output is one outgoing edge of a task.
type output struct {
	writer   operator.Writer
	from     int // link
	channels []*channel
}

// channel leads to one consumer task.
type channel struct {
	to    *task
	input int
}

// Send implements operator.Channel.
func (c *channel) BatchRecords() int { return operator.MaxBatchRecords }

func (c *channel) Send(b operator.Batch) error {
	for from, records := 0, b.Len(); from < records; {
		data, to, err := b.AppendEncoded(nil, from)
		if err != nil {
			return err
		}
		c.to.queue = append(c.to.queue, message{c.input, data})
		from = to
	}
	b.Release()
	return nil
}

// build makes the instances of the task's chain. Consumers are there already; their inputs grow by a channel for each producer.
func (t *task) build(p *operator.Program) error {
	index := make(map[string]int)
	for i, o := range t.vertex.Operators {
		index[o.UID] = i
	}
	t.links = make([]link, len(t.vertex.Operators))
	for i := len(t.vertex.Operators) - 1; i >= 0; i-- {
		o := t.vertex.Operators[i]
		var outs []any
		for _, e := range p.Graph.Chained {
			if e.From == o.UID {
				outs = append(outs, t.links[index[e.To]].instance.Input())
			}
		}
		for _, e := range p.Graph.Edges {
			if e.FromOperator == o.UID {
				outs = append(outs, t.connect(p, e, i))
			}
		}
		instance, err := p.Factories[o.UID].New(outs)
		if err != nil {
			return fmt.Errorf("operator %q: %w", o.Name, err)
		}
		t.links[i] = link{op: o, instance: instance, parent: -1, delivered: operator.MinWatermark, out: mark{wm: operator.MinWatermark}}
	}
	for _, e := range p.Graph.Chained {
		if to, ok := index[e.To]; ok {
			t.links[to].parent = index[e.From]
		}
	}
	return nil
}

// connect makes the producing end of an edge and returns its collector.
func (t *task) connect(p *operator.Program, e graph.VertexEdge, from int) any {
	out := output{from: from}
	for _, consumer := range t.job.byVertex[e.ToVertex] {
		if e.Partitioning == graph.Forward && consumer.subtask != t.subtask {
			continue
		}
		out.channels = append(out.channels, &channel{to: consumer, input: len(consumer.inputs)})
		consumer.inputs = append(consumer.inputs, mark{wm: operator.MinWatermark})
		reader, err := p.Edges[e.ID].NewReader(consumer.links[0].instance.Input())
		if err != nil {
			t.job.fail(err)
		}
		consumer.readers = append(consumer.readers, reader)
	}
	cfg := operator.WriterConfig{Subtask: t.subtask, MaxParallelism: p.Graph.MaxParallelism}
	for _, c := range out.channels {
		cfg.Channels = append(cfg.Channels, c)
	}
	out.writer = p.Edges[e.ID].NewWriter(cfg)
	t.outputs = append(t.outputs, out)
	return out.writer.Collector()
}

// open opens the instances.
func (t *task) open(ctx context.Context, p *operator.Program, from *Checkpoint) error {
	for i := range t.links {
		l := &t.links[i]
		dir, err := os.MkdirTemp(t.job.dir, "instance-")
		if err != nil {
			return err
		}
		rt := &operator.Runtime{
			ClusterID: "test", JobID: "test", JobName: p.Graph.Name, Attempt: t.job.attempt,
			Vertex: t.vertex.ID, Operator: l.op, Subtask: t.subtask, Parallelism: t.vertex.Parallelism,
			MaxParallelism: p.Graph.MaxParallelism, KeyGroups: keygroup.RangeOf(t.subtask, t.vertex.Parallelism, p.Graph.MaxParallelism),
			Checkpoints: p.Graph.Checkpoints, Clock: &t.job.clock, Logger: t.job.logger, Stats: t.job.stats(l.op.UID),
			Dir: dir, Segments: t.job.store, Restored: from.restored(l.op.UID, t.subtask, t.vertex.Parallelism),
			Fail: t.job.fail, Post: t.job.post,
		}
		if err := l.instance.Open(ctx, rt); err != nil {
			return fmt.Errorf("operator %q: %w", l.op.Name, err)
		}
	}
	return nil
}

// fetch lets a source emit what there is and reports whether that was anything.
func (t *task) fetch() (bool, error) {
	source, ok := t.links[0].instance.(operator.SourceInstance)
	if !ok || t.ended {
		return false, nil
	}
	// Sources look for input before they wait for it.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	before := t.job.stats(t.links[0].op.UID).In.Load()
	fetched, err := source.Fetch(ctx)
	switch {
	case errors.Is(err, io.EOF):
		return true, t.end()
	case errors.Is(err, context.Canceled):
		return false, nil
	case err != nil:
		return false, err
	}
	for more := true; more; {
		if more, err = source.Emit(fetched, operator.MaxBatchRecords); err != nil {
			return false, err
		}
	}
	return t.job.stats(t.links[0].op.UID).In.Load() > before, nil
}

// consume handles the batches that have come and reports whether there were any.
func (t *task) consume() (bool, error) {
	queue := t.queue
	t.queue = nil
	for _, m := range queue {
		if err := t.readers[m.channel].Encoded(m.data); err != nil {
			return false, err
		}
	}
	return len(queue) > 0, nil
}

// combine works out the event time of the task's inputs: the lowest of those that are neither idle nor ended. With all idle it is the
// highest, so that it does not matter which of them fell idle last.
func (t *task) combine() {
	lowest, highest, open, active := operator.MaxWatermark, operator.MinWatermark, 0, 0
	for _, m := range t.inputs {
		if m.wm == operator.MaxWatermark {
			continue
		}
		open++
		highest = max(highest, m.wm)
		if !m.idle {
			active++
			lowest = min(lowest, m.wm)
		}
	}
	t.in.idle = open > 0 && active == 0
	if t.in.idle {
		lowest = highest
	}
	t.in.wm = max(t.in.wm, lowest)
}

// advance takes watermarks and idleness down the chain, and reports whether anything changed.
func (t *task) advance(now time.Time) (bool, error) {
	if t.ended {
		return false, nil
	}
	if len(t.inputs) > 0 {
		t.combine()
		if t.in.wm == operator.MaxWatermark {
			return true, t.end()
		}
	}
	changed := false
	for i := range t.links {
		l := &t.links[i]
		up := t.in
		if l.parent >= 0 {
			up = t.links[l.parent].out
		}
		if idle, ok := l.instance.(operator.IdleListener); ok && l.upIdle != up.idle {
			l.upIdle = up.idle
			idle.InputIdle(up.idle)
		}
		before := l.out
		own, makes := l.instance.(operator.WatermarkSource)
		if up.wm > l.delivered && len(t.inputs)+l.parent >= 0 {
			l.delivered = up.wm
			wm, err := l.instance.Watermark(up.wm)
			if err != nil {
				return false, fmt.Errorf("operator %q: %w", l.op.Name, err)
			}
			if !makes {
				l.out.wm = max(l.out.wm, wm)
			}
		}
		switch {
		case makes:
			wm, idle := own.CurrentWatermark(now)
			if _, source := l.instance.(operator.SourceInstance); source && t.job.handWatermark != nil {
				wm, idle = *t.job.handWatermark, false
			}
			l.out = mark{max(l.out.wm, wm), idle}
		default:
			l.out.idle = up.idle
		}
		changed = changed || l.out != before
	}
	return changed, nil
}

// end tells the chain that its input has ended.
func (t *task) end() error {
	for i := range t.links {
		l := &t.links[i]
		if _, err := l.instance.Watermark(operator.MaxWatermark); err != nil {
			return fmt.Errorf("operator %q: %w", l.op.Name, err)
		}
		l.delivered, l.out = operator.MaxWatermark, mark{wm: operator.MaxWatermark}
	}
	for _, l := range t.links {
		if err := l.instance.EndInput(); err != nil {
			return fmt.Errorf("operator %q: %w", l.op.Name, err)
		}
	}
	t.ended = true
	return nil
}

// flush sends the batches begun, and after them watermarks and idleness.
func (t *task) flush() error {
	for _, o := range t.outputs {
		if err := o.writer.Flush(); err != nil {
			return err
		}
		for _, c := range o.channels {
			// Batches are handled before marks are looked at, so no mark overtakes a record.
			c.to.inputs[c.input] = t.links[o.from].out
		}
	}
	return nil
}

// snapshot takes and finishes the snapshots of the chain.
func (t *task) snapshot(ctx context.Context, b operator.Barrier, c *Checkpoint) error {
	for i := range t.links {
		l := &t.links[i]
		finish, err := l.instance.Snapshot(ctx, b)
		if err != nil {
			return fmt.Errorf("operator %q: %w", l.op.Name, err)
		}
		s := &snapshotv1.OperatorSnapshot{}
		if finish != nil {
			if s, err = finish(ctx); err != nil {
				return fmt.Errorf("operator %q: %w", l.op.Name, err)
			}
			s.Uid = l.op.UID
		}
		c.add(l.op.UID, t.subtask, t.vertex.Parallelism, s)
	}
	return nil
}
