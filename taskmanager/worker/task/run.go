package task

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

const (
	// emitLimit is how many records a source emits at most before the task looks at its mailbox and clock, and emitTime about how long
	// that takes at most: a barrier waits for it.
	emitLimit = 256
	firstEmit = 32
	emitTime  = 50 * time.Millisecond
	// flushAfter bounds how long records of a busy task wait for their batch to fill.
	flushAfter = 5 * time.Millisecond
	// longestWait bounds a wait for a timer, so that a clock that jumps is noticed. Without one nothing but input changes anything.
	longestWait = time.Second
	noTimer     = time.Hour
)

// fetch is one result of a source's Fetch.
type fetch struct {
	value any
	err   error
}

// Run runs the task until it is finished, canceled or failed. It returns nil after Finish, ErrCanceled after Cancel, and the failure
// otherwise. The operators are still to be closed.
func (t *Task) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-t.failed:
		case <-t.canceled:
		case <-stop:
		}
		cancel()
	}()
	if t.source != nil {
		t.fetches = make(chan fetch)
		t.background.Go(func() { t.fetchLoop(ctx) })
	}
	err := t.protect(func() error { return t.loop(ctx) })
	t.mail.close()
	if t.cfg.Inbox != nil {
		t.cfg.Inbox.Close()
	}
	close(stop)
	<-watched
	if err != nil && !errors.Is(err, ErrCanceled) {
		t.Fail(err)
	}
	if err == nil {
		t.closeSenders(true)
	}
	t.background.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.failure != nil:
		return t.failure
	case t.stopped:
		return ErrCanceled
	}
	return nil
}

func (t *Task) fetchLoop(ctx context.Context) {
	for {
		var f fetch
		if err := protect(func() error { f.value, f.err = t.source.Fetch(ctx); return nil }); err != nil {
			f.err = err
		}
		select {
		case t.fetches <- f:
		case <-ctx.Done():
			return
		}
		if f.err != nil {
			return
		}
	}
}

func (t *Task) loop(ctx context.Context) error {
	timer := time.NewTimer(noTimer)
	defer timer.Stop()
	for {
		t.activity.is(processing, -1)
		if err := t.mail.drain(ctx); err != nil {
			return err
		}
		select {
		case <-t.canceled:
			return ErrCanceled
		case <-t.failed:
			return t.failure
		case <-t.finish:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		default:
		}
		now := t.cfg.Clock.Now()
		if err := t.fireTimers(now); err != nil {
			return err
		}
		worked, err := t.step(ctx, now)
		if err != nil {
			return err
		}
		if t.assigns {
			if err := t.advance(now); err != nil {
				return err
			}
		}
		t.publish()
		if worked {
			if t.unflushed && now.Sub(t.unflushedSince) >= flushAfter {
				if err := t.flush(); err != nil {
					return err
				}
			}
			continue
		}
		if t.unflushed {
			if err := t.flush(); err != nil {
				return err
			}
			for _, p := range t.pushers {
				p.Push()
			}
		}
		timer.Reset(t.waitTime(now))
		idle := waitsForInput
		if t.paused {
			idle = paused
		}
		t.activity.is(idle, -1)
		t.wait(ctx, timer)
	}
}

// wait waits for something to do.
func (t *Task) wait(ctx context.Context, timer *time.Timer) {
	var inbox <-chan struct{}
	if t.cfg.Inbox != nil {
		inbox = t.cfg.Inbox.Wake()
	}
	fetches := t.fetches
	if t.have || t.paused || t.exhausted {
		fetches = nil
	}
	select {
	case <-t.mail.wake:
	case <-inbox:
	case f := <-fetches:
		t.fetched, t.have = f, true
	case <-timer.C:
	case <-t.finish:
	case <-ctx.Done():
	}
}

func (t *Task) waitTime(now time.Time) time.Duration {
	d := noTimer
	if !t.ended {
		for _, o := range t.timers {
			if at, ok := o.NextTimer(); ok {
				d = min(d, longestWait, time.UnixMilli(at).Sub(now))
			}
		}
	}
	return max(d, 0)
}

// step works off one element of the input, or a piece of what the source fetched.
func (t *Task) step(ctx context.Context, now time.Time) (worked bool, err error) {
	if t.source != nil {
		return t.emit(now)
	}
	ch, e, ok := t.cfg.Inbox.Poll()
	if !ok {
		return false, nil
	}
	return true, t.element(ctx, now, ch, e)
}

func (t *Task) emit(now time.Time) (worked bool, err error) {
	if t.paused || t.exhausted {
		return false, nil
	}
	if !t.have {
		select {
		case t.fetched = <-t.fetches:
			t.have = true
		default:
			return false, nil
		}
	}
	if err := t.fetched.err; err != nil {
		t.have = false
		if errors.Is(err, io.EOF) {
			t.exhausted = true
			return true, t.endInput(now)
		}
		t.current = 0
		return false, t.errorf("read the input", err)
	}
	records := changes(t.fetched.value)
	if records {
		t.touch()
	}
	t.produced(now)
	t.activity.emits.Add(1)
	more, err := t.source.Emit(t.fetched.value, t.emits)
	if err != nil {
		return false, &Error{Operator: t.name, Doing: "process records", Err: err}
	}
	if records {
		t.meet()
	}
	if took := t.cfg.Clock.Now().Sub(now); took > emitTime {
		t.emits = max(1, int(int64(t.emits)*int64(emitTime)/int64(took)))
	} else {
		t.emits = min(2*t.emits, emitLimit)
	}
	if !more {
		t.have, t.fetched = false, fetch{}
	}
	return true, nil
}

// meet tells of the first record.
func (t *Task) meet() {
	if !t.met {
		t.met = true
		if t.cfg.FirstRecord != nil {
			t.cfg.FirstRecord()
		}
	}
}

func (t *Task) element(ctx context.Context, now time.Time, ch int, e exchange.Element) error {
	switch e.Kind {
	case exchange.Data:
		t.touch()
		t.produced(now)
		t.stats.recordsIn += uint64(e.Records)
		var err error
		if e.Batch != nil {
			err = t.cfg.Readers[ch].Batch(e.Batch)
		} else {
			err = t.cfg.Readers[ch].Encoded(e.Encoded)
		}
		if err != nil {
			return &Error{Operator: t.name, Doing: "process records", Err: err}
		}
		e.Done()
		t.meet()
	case exchange.Barrier:
		if n, aligning := t.aligner.Aligning(); !aligning || e.Barrier.Checkpoint > n {
			t.alignedSince = now
		}
		return t.apply(ctx, ch, t.aligner.Barrier(ch, e.Barrier))
	case exchange.Watermark:
		if t.inputs.Advance(ch, e.Watermark) {
			return t.advance(now)
		}
	case exchange.Idle, exchange.Active:
		if t.inputs.SetIdle(ch, e.Kind == exchange.Idle) {
			return t.advance(now)
		}
	case exchange.End:
		if t.channelEnded[ch] {
			return nil
		}
		t.channelEnded[ch] = true
		t.endedInputs++
		// The end of the input comes before a snapshot that was waiting for this channel only.
		effect := t.aligner.End(ch)
		if t.endedInputs == len(t.channelEnded) {
			if err := t.endInput(now); err != nil {
				return err
			}
		}
		return t.apply(ctx, ch, effect)
	}
	return nil
}

// endInput ends the input of one operator after the other, so that what one emits at its end is on time for the next.
func (t *Task) endInput(now time.Time) error {
	t.touch()
	t.produced(now)
	for i := range t.links {
		l := &t.links[i]
		t.current = i
		l.delivered, l.out = operator.MaxWatermark, mark{wm: operator.MaxWatermark}
		if _, err := l.Instance.Watermark(operator.MaxWatermark); err != nil {
			return t.errorf("advance event time to the end", err)
		}
		if err := l.Instance.EndInput(); err != nil {
			return t.errorf("end the input", err)
		}
	}
	t.current = -1
	if err := t.flush(); err != nil {
		return err
	}
	for _, o := range t.outputs {
		for _, s := range o.Senders {
			if err := s.End(); err != nil {
				return err
			}
		}
	}
	t.ended = true
	t.cfg.Reporter.Ended()
	return nil
}

func (t *Task) fireTimers(now time.Time) error {
	if t.ended {
		return nil
	}
	ms := now.UnixMilli()
	for _, o := range t.timers {
		if at, ok := o.NextTimer(); !ok || at > ms {
			continue
		}
		t.touch()
		t.produced(now)
		t.current = o.link
		if err := o.OnProcessingTime(ms); err != nil {
			return t.errorf("fire timers", err)
		}
		t.current = -1
	}
	return nil
}

// changes reports whether a fetched value moves positions or records.
func changes(fetched any) bool {
	if u, ok := fetched.(operator.Unchanging); ok {
		return !u.Unchanging()
	}
	return fetched != nil
}

// touch notes that something changed since the last snapshot.
func (t *Task) touch() {
	if !t.changed {
		t.changed = true
		t.cfg.Reporter.Activity(t.lastSnapshot)
	}
}

// produced notes that outputs may hold something from now on.
func (t *Task) produced(now time.Time) {
	if !t.unflushed {
		t.unflushed, t.unflushedSince = true, now
	}
}
