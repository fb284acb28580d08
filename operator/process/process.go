package process

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/internal/keyed"
	"github.com/weir-stream/weir/statebackend"
)

// Config describes a process operator.
type Config[K comparable, T, R any] struct {
	Key      func(T) K
	KeyCodec codec.Key[K]
	Setup    Setup[K, T, R]
}

// Names of the timers' states, which user states cannot have.
const (
	eventTimers      = "#event-timers"
	processingTimers = "#processing-timers"
)

// Declared runs the setup without a state backend and returns what identifies the declared states, for the job's fingerprint, and
// everything wrong with them.
func Declared[K comparable, T, R any](setup Setup[K, T, R]) (codecs []string, err error) {
	s := &States[K]{key: new(K), names: make(map[string]bool)}
	h := setup(s)
	if h.Record == nil {
		s.errs = append(s.errs, fmt.Errorf("%w: the handler has no Record function", ErrDeclaration))
	}
	return s.codecs, errors.Join(s.errs...)
}

// New returns the operator.
func New[K comparable, T, R any](cfg Config[K, T, R]) operator.Factory {
	return operator.FactoryFunc(func(outs []any) (operator.Instance, error) {
		out, err := operator.Fanout[R](outs)
		return &instance[K, T, R]{cfg: cfg, c: Context[K, R]{out: out, watermark: operator.MinWatermark}}, err
	})
}

// instance is one subtask.
type instance[K comparable, T, R any] struct {
	cfg     Config[K, T, R]
	rt      *operator.Runtime
	backend *statebackend.Backend[K]
	handler Handler[K, T, R]
	brake   keyed.Brake
	// aging tells that a state has a time to live. event is then its clock in event time: the watermark, or while timers fire up to a
	// watermark, the time of the timer. The end of input is no time at which anything expires.
	aging bool
	event int64
	c     Context[K, R]
	keys  []K // of records to come
}

var (
	_ operator.CheckpointListener = (*instance[int, int, int])(nil)
	_ operator.TimerOwner         = (*instance[int, int, int])(nil)
)

// Input implements operator.Instance.
func (p *instance[K, T, R]) Input() any { return operator.Collector[T](p) }

// Open implements operator.Instance.
func (p *instance[K, T, R]) Open(ctx context.Context, rt *operator.Runtime) error {
	p.rt = rt
	p.backend = statebackend.New(keyed.Config(rt), p.cfg.KeyCodec)
	p.c.clock = rt.Clock
	p.c.watermark = keyed.Watermark(rt.Restored)
	p.c.event = statebackend.NewTimers(p.backend, eventTimers)
	p.c.process = statebackend.NewTimers(p.backend, processingTimers)
	s := &States[K]{backend: p.backend, key: &p.c.key, names: make(map[string]bool)}
	p.handler = p.cfg.Setup(s)
	if err := s.finish(); err != nil {
		return operator.Fatal(err)
	}
	if err := p.backend.Open(ctx); err != nil {
		return err
	}
	p.aging = p.backend.HasTTL()
	if p.event = operator.MinWatermark; p.c.watermark != operator.MaxWatermark {
		p.event = p.c.watermark
	}
	p.tick(operator.NoTimestamp)
	return nil
}

// tick sets the clocks of states with a time to live, before a record or timer.
func (p *instance[K, T, R]) tick(timestamp int64) {
	if p.aging {
		p.backend.SetTime(p.rt.Clock.Now().UnixMilli(), p.event, timestamp)
	}
}

// Expect implements operator.Expecter.
func (p *instance[K, T, R]) Expect(vs []T) {
	p.keys = keyed.Expect(p.backend, p.keys, vs, p.cfg.Key)
}

// Collect implements operator.Collector.
func (p *instance[K, T, R]) Collect(v T, timestamp int64) error {
	if p.backend.Over() {
		p.brake.Press(p.rt, p.backend.Pressure())
	}
	p.tick(timestamp)
	p.c.key, p.c.timestamp = p.cfg.Key(v), timestamp
	return p.handler.Record(&p.c, v)
}

// Watermark implements operator.Instance.
func (p *instance[K, T, R]) Watermark(wm int64) (int64, error) {
	if wm <= p.c.watermark {
		return p.c.watermark, nil
	}
	p.c.watermark = wm
	err := p.c.event.Due(wm, func(at int64, k K) error {
		p.event = max(p.event, at)
		p.tick(at)
		p.c.key, p.c.timestamp = k, at
		if p.handler.EventTimer == nil {
			return fmt.Errorf("%w: a timer in event time was set and the handler has no EventTimer function", ErrDeclaration)
		}
		return p.handler.EventTimer(&p.c, time.UnixMilli(at).UTC())
	})
	if wm != operator.MaxWatermark {
		p.event = wm
	}
	return wm, err
}

// NextTimer implements operator.TimerOwner.
func (p *instance[K, T, R]) NextTimer() (int64, bool) { return p.c.process.Next() }

// OnProcessingTime implements operator.TimerOwner.
func (p *instance[K, T, R]) OnProcessingTime(now int64) error {
	return p.c.process.Due(now, func(at int64, k K) error {
		p.tick(operator.NoTimestamp)
		p.c.key, p.c.timestamp = k, operator.NoTimestamp
		if p.handler.ProcessingTimer == nil {
			return fmt.Errorf("%w: a timer in processing time was set and the handler has no ProcessingTimer function", ErrDeclaration)
		}
		return p.handler.ProcessingTimer(&p.c, time.UnixMilli(at).UTC())
	})
}

// Snapshot implements operator.Instance.
func (p *instance[K, T, R]) Snapshot(_ context.Context, b operator.Barrier) (operator.Finish, error) {
	p.rt.Stats.StateBytes.Store(p.backend.Bytes())
	p.tick(operator.NoTimestamp)
	return keyed.Finish(keyed.Snapshot(p.rt.Operator.UID, p.c.watermark), p.backend.Freeze(b.Checkpoint, b.Full)), nil
}

// CheckpointCompleted implements operator.CheckpointListener.
func (p *instance[K, T, R]) CheckpointCompleted(n uint64) error {
	p.backend.CheckpointCompleted(n)
	if !p.backend.Over() {
		p.brake.Release()
	}
	return nil
}

// EndInput implements operator.Instance.
func (p *instance[K, T, R]) EndInput() error { return nil }

// Close implements operator.Instance.
func (p *instance[K, T, R]) Close() error {
	if p.backend == nil {
		return nil
	}
	return p.backend.Close()
}
