package sinks

import (
	"context"
	"fmt"
	"sync/atomic"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
)

// PlainConfig describes a sink without transactions to [Plain].
type PlainConfig[T any] struct {
	// Kind names the system.
	Kind string
	// Guarantee is the one asked for by the user; the zero value leaves it to the job.
	Guarantee graph.Guarantee
	// Validate checks the settings at plan time; nil for nothing to check.
	Validate func(sources.JobSettings) error
	// New makes the writer of one subtask.
	New func() (Writer[T], error)
}

// Plain makes a sink from a factory of writers. It supports at-least-once, by a flush at each barrier, and none.
func Plain[T any](cfg PlainConfig[T]) Sink[T] { return plainSink[T]{cfg} }

type plainSink[T any] struct{ cfg PlainConfig[T] }

func (s plainSink[T]) Kind() string                             { return s.cfg.Kind }
func (s plainSink[T]) Guarantee() graph.Guarantee               { return s.cfg.Guarantee }
func (s plainSink[T]) Resource() string                         { return "" }
func (s plainSink[T]) TransactionSlots(sources.JobSettings) int { return 0 }
func (s plainSink[T]) Supports(g graph.Guarantee) bool          { return g != graph.ExactlyOnce }

func (s plainSink[T]) Validate(job sources.JobSettings) error {
	if s.cfg.Validate == nil {
		return nil
	}
	return s.cfg.Validate(job)
}

func (s plainSink[T]) NewInstance(g graph.Guarantee) (operator.Instance, error) {
	if !s.Supports(g) {
		return nil, fmt.Errorf("%s sink: exactly-once is not supported", s.cfg.Kind)
	}
	w, err := s.cfg.New()
	if err != nil {
		return nil, err
	}
	return newPlain(w, g), nil
}

// plain is the operator instance around a writer.
type plain[T any] struct {
	w         Writer[T]
	pusher    operator.Pusher // nil unless w holds records back
	guarantee graph.Guarantee
	uid       string
	out       counter
	// life ends at Close. It is kept because Collect takes no context.
	life   context.Context //nolint:containedctx // as said
	cancel context.CancelFunc
}

var (
	_ operator.Instance = (*plain[int])(nil)
	_ operator.Pusher   = (*plain[int])(nil)
)

func newPlain[T any](w Writer[T], g graph.Guarantee) *plain[T] {
	d := &plain[T]{w: w, guarantee: g}
	d.pusher, _ = any(w).(operator.Pusher)
	return d
}

func (d *plain[T]) Input() any { return d }

func (d *plain[T]) Open(ctx context.Context, rt *operator.Runtime) error {
	d.uid = rt.Operator.UID
	d.out.total = &rt.Stats.Out
	d.life, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := d.w.Open(ctx, contextOf(rt, d.guarantee)); err != nil {
		return fmt.Errorf("sink %s: %w", d.uid, err)
	}
	return nil
}

// Collect writes a record.
func (d *plain[T]) Collect(v T, timestamp int64) error {
	if err := d.w.Write(d.life, v, timestamp); err != nil {
		return fmt.Errorf("sink %s: %w", d.uid, err)
	}
	d.out.add()
	return nil
}

// Push implements operator.Pusher.
func (d *plain[T]) Push() {
	if d.pusher != nil {
		d.pusher.Push()
	}
}

func (d *plain[T]) Watermark(wm int64) (int64, error) {
	d.out.publish()
	return wm, nil
}

// Snapshot flushes, on which at-least-once rests: the positions of this checkpoint pass over no record that was not accepted.
func (d *plain[T]) Snapshot(ctx context.Context, b operator.Barrier) (operator.Finish, error) {
	d.out.publish()
	if d.guarantee != graph.AtLeastOnce {
		return nil, nil
	}
	if err := d.w.Flush(ctx); err != nil {
		return nil, fmt.Errorf("sink %s: flush for checkpoint %d: %w", d.uid, b.Checkpoint, err)
	}
	return func(context.Context) (*snapshotv1.OperatorSnapshot, error) {
		return &snapshotv1.OperatorSnapshot{Uid: d.uid}, nil
	}, nil
}

// EndInput flushes, so that a job without checkpoints does not end before its output is out.
func (d *plain[T]) EndInput() error {
	d.out.publish()
	if err := d.w.Flush(d.life); err != nil {
		return fmt.Errorf("sink %s: flush at the end of input: %w", d.uid, err)
	}
	return nil
}

func (d *plain[T]) Close() error {
	if d.cancel == nil {
		return nil // never opened
	}
	d.cancel()
	return d.w.Close()
}

// counter counts on the task's goroutine and publishes in batches.
type counter struct {
	total *atomic.Uint64
	n     uint64
}

const counterBatch = 1024

func (c *counter) add() {
	if c.n++; c.n >= counterBatch {
		c.publish()
	}
}

func (c *counter) publish() {
	if c.n > 0 {
		c.total.Add(c.n)
		c.n = 0
	}
}
