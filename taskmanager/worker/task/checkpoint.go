package task

import (
	"context"
	"errors"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
)

// trigger takes a checkpoint at a source. A trigger that comes again, or late, changes nothing.
func (t *Task) trigger(ctx context.Context, b barrier.Barrier) error {
	if t.source == nil || b.Checkpoint <= t.lastSnapshot {
		return nil
	}
	faultpoint.Hit(faultpoint.TriggerReceived)
	t.paused = t.paused || b.Stop
	err := t.snapshot(ctx, b, 0)
	faultpoint.Hit(faultpoint.BarrierSent)
	return err
}

// apply carries out what the aligner decided about an event of channel ch.
func (t *Task) apply(ctx context.Context, ch int, e barrier.Effect) error {
	if e.UnblockAll {
		t.cfg.Inbox.UnblockAll()
	}
	if e.Block {
		t.cfg.Inbox.Block(ch)
	}
	if e.Block {
		n, _ := t.aligner.Aligning()
		t.activity.reached(n, jobv1.CheckpointStage_CHECKPOINT_STAGE_ALIGNING, t.inputNames(t.aligner.Missing()))
		faultpoint.Hit(faultpoint.Aligning)
	}
	if e.Snapshot {
		faultpoint.Hit(faultpoint.Aligned)
		return t.snapshot(ctx, e.Barrier, t.cfg.Clock.Now().Sub(t.alignedSince))
	}
	return nil
}

// pending is a snapshot whose synchronous part is done.
type pending struct {
	barrier    barrier.Barrier
	finishes   []operator.Finish // by link; nil for no state
	watermarks []int64           // by link
	ended      bool
	alignment  time.Duration
	sync       time.Duration
}

// snapshot separates the records before the barrier from those after it: in the operators' state and on every output.
func (t *Task) snapshot(ctx context.Context, b barrier.Barrier, alignment time.Duration) error {
	if err := t.flush(); err != nil {
		return err
	}
	t.activity.reached(b.Checkpoint, jobv1.CheckpointStage_CHECKPOINT_STAGE_SNAPSHOT, nil)
	began := time.Now()
	p := &pending{
		barrier: b, finishes: make([]operator.Finish, len(t.links)), watermarks: make([]int64, len(t.links)),
		ended: t.ended, alignment: alignment,
	}
	for i := range t.links {
		t.current = i
		t.activity.is(snapshotting, i)
		finish, err := t.links[i].Instance.Snapshot(ctx, operator.Barrier{Checkpoint: b.Checkpoint, Full: b.Full})
		if err != nil {
			return t.errorf("take a snapshot", err)
		}
		p.finishes[i], p.watermarks[i] = finish, t.links[i].delivered
	}
	t.current = -1
	t.activity.is(processing, -1)
	for _, o := range t.outputs {
		for _, s := range o.Senders {
			if err := s.Barrier(b); err != nil {
				return err
			}
		}
	}
	p.sync = time.Since(began)
	t.activity.reached(b.Checkpoint, jobv1.CheckpointStage_CHECKPOINT_STAGE_WRITING, nil)
	t.lastSnapshot, t.changed = b.Checkpoint, false
	before, done := t.lastAsync, make(chan struct{})
	t.lastAsync = done
	t.background.Go(func() {
		defer close(done)
		if before != nil {
			<-before
		}
		t.store(p)
	})
	return nil
}

// store finishes a snapshot on a goroutine of its own and reports it.
func (t *Task) store(p *pending) {
	began := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-t.failed:
		case <-t.canceled:
		case <-done:
		}
		cancel()
	}()
	n := p.barrier.Checkpoint
	defer t.activity.reached(n, jobv1.CheckpointStage_CHECKPOINT_STAGE_DONE, nil)
	s := &snapshotv1.TaskSnapshot{
		Vertex: t.cfg.Vertex, Subtask: uint32(t.cfg.Subtask), Parallelism: uint32(t.cfg.Parallelism),
	}
	var declined, failed error
	for i, finish := range p.finishes {
		if finish == nil {
			continue
		}
		var op *snapshotv1.OperatorSnapshot
		err := protect(func() (err error) { op, err = finish(ctx); return err })
		var storage *statebackend.StorageError
		switch {
		case err == nil:
			s.Operators = append(s.Operators, t.complete(op, i, p))
		case errors.As(err, &storage):
			declined = errors.Join(declined, &Error{Operator: t.links[i].name, Doing: "store the snapshot", Err: err})
		default:
			failed = errors.Join(failed, &Error{Operator: t.links[i].name, Doing: "finish the snapshot", Err: err})
		}
	}
	ack := &workerv1.CheckpointAck{Checkpoint: n}
	if declined == nil && failed == nil {
		var err error
		ack.Handle, ack.DeltaBytes, err = t.cfg.Snapshots.Handle(ctx, n, s, p.ended)
		var storage *statebackend.StorageError
		if errors.As(err, &storage) {
			declined = err
		} else {
			failed = err
		}
	}
	switch {
	case failed != nil:
		t.Fail(failed)
	case declined != nil:
		t.cfg.Logger.Warn("checkpoint declined", "checkpoint", n, "err", declined)
		t.cfg.Reporter.Declined(n, declined.Error())
	default:
		ack.AlignmentMs = uint64(p.alignment.Milliseconds())
		ack.SyncMs = uint64(p.sync.Milliseconds())
		ack.AsyncMs = uint64(time.Since(began).Milliseconds())
		faultpoint.Hit(faultpoint.AckDue)
		t.cfg.Reporter.Acked(ack)
	}
}

// complete adds to an operator's snapshot what the task knows.
func (t *Task) complete(op *snapshotv1.OperatorSnapshot, i int, p *pending) *snapshotv1.OperatorSnapshot {
	if op == nil {
		op = &snapshotv1.OperatorSnapshot{}
	}
	op.Uid = t.links[i].uid
	if wm := p.watermarks[i]; op.Watermark == nil && wm != operator.MinWatermark {
		op.Watermark = &wm
	}
	if i == 0 && t.source != nil {
		op.Ended = p.ended
	}
	return op
}

// completed passes the completion of checkpoint n on and has everything prepared up to it committed.
func (t *Task) completed(n uint64) error {
	for i := range t.links {
		if l := t.links[i].listener; l != nil {
			t.current = i
			if err := l.CheckpointCompleted(n); err != nil {
				return t.errorf("take note of a completed checkpoint", err)
			}
		}
	}
	t.current = -1
	if len(t.committers) == 0 {
		t.cfg.Reporter.Committed(n)
		return nil
	}
	remaining := len(t.committers)
	for _, c := range t.committers {
		t.current = c.link
		c.Commit(n, func(err error) {
			t.Post(func() error {
				if err != nil {
					return &Error{Operator: t.links[c.link].name, Doing: "commit", Err: err}
				}
				if remaining--; remaining == 0 {
					t.cfg.Reporter.Committed(n)
				}
				return nil
			})
		})
	}
	t.current = -1
	return nil
}
