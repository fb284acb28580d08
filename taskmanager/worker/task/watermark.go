package task

import (
	"time"

	"github.com/weir-stream/weir/operator"
)

// advance takes watermarks and idleness down the chain. The maximal watermark is left to endInput.
func (t *Task) advance(now time.Time) error {
	if t.ended {
		return nil
	}
	up := mark{wm: operator.MinWatermark}
	if t.inputs != nil {
		up.wm, up.idle = t.inputs.Combined()
	}
	if up.wm == operator.MaxWatermark {
		return nil
	}
	for i := range t.links {
		l := &t.links[i]
		if l.Parent >= 0 {
			up = t.links[l.Parent].out
		}
		before := l.out
		t.current = i
		if l.idle != nil && l.upIdle != up.idle {
			l.upIdle = up.idle
			l.idle.InputIdle(up.idle)
		}
		if up.wm > l.delivered {
			t.touch()
			t.produced(now)
			l.delivered = up.wm
			wm, err := l.Instance.Watermark(up.wm)
			if err != nil {
				return t.errorf("advance event time", err)
			}
			if l.watermarks == nil {
				l.out.wm = max(l.out.wm, wm)
			}
		}
		if l.watermarks != nil {
			wm, idle := l.watermarks.CurrentWatermark(now)
			l.out.wm, l.out.idle = max(l.out.wm, wm), idle
		} else {
			l.out.idle = up.idle
		}
		if l.out != before {
			t.produced(now)
		}
	}
	t.current = -1
	return nil
}

// flush sends the batches begun and, behind them, what the outputs do not know of watermarks and idleness.
func (t *Task) flush() error {
	t.unflushed = false
	for i := range t.outputs {
		o := &t.outputs[i]
		if err := o.Writer.Flush(); err != nil {
			return err
		}
		m := t.links[o.From].out
		for _, s := range o.Senders {
			if m.wm != o.sent.wm {
				if err := s.Watermark(m.wm); err != nil {
					return err
				}
			}
			if m.idle != o.sent.idle {
				if err := s.Idle(m.idle); err != nil {
					return err
				}
			}
		}
		o.sent = m
	}
	return nil
}
