package task_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/statebackend"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// diary notes what happens, in order.
type diary struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func newDiary() *diary { return &diary{changed: make(chan struct{})} }

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...)
}

// wait waits until a line was noted.
func (d *diary) wait(t *testing.T, line string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		d.mu.Lock()
		changed := d.changed
		for _, l := range d.lines {
			if l == line {
				d.mu.Unlock()
				return
			}
		}
		d.mu.Unlock()
		select {
		case <-changed:
		case <-deadline:
			require.Fail(t, "not noted", "%q in %q", line, d.all())
		}
	}
}

// Reporter methods.
func (d *diary) Acked(a *workerv1.CheckpointAck)  { d.note("acked %d", a.GetCheckpoint()) }
func (d *diary) Declined(n uint64, reason string) { d.note("declined %d: %s", n, reason) }
func (d *diary) Committed(n uint64)               { d.note("committed %d", n) }
func (d *diary) Activity(since uint64)            { d.note("activity %d", since) }
func (d *diary) Ended()                           { d.note("ended") }
func (d *diary) Failed(err error)                 { d.note("failed: %v", err) }

// step is an operator that notes what it is told and passes records on.
type step struct {
	operator.Base
	name string
	d    *diary
	out  operator.Collector[int]
}

func (s *step) Input() any { return operator.Collector[int](s) }

func (s *step) Collect(v int, ts int64) error {
	s.d.note("%s record %d", s.name, v)
	if s.out == nil {
		return nil
	}
	return s.out.Collect(v, ts)
}

func (s *step) Watermark(wm int64) (int64, error) {
	if wm == operator.MaxWatermark {
		s.d.note("%s watermark max", s.name)
	} else {
		s.d.note("%s watermark %d", s.name, wm)
	}
	return wm, nil
}

// EndInput emits a last record.
func (s *step) EndInput() error {
	s.d.note("%s end", s.name)
	if s.out == nil {
		return nil
	}
	return s.out.Collect(1000, 0)
}

func (s *step) InputIdle(idle bool) { s.d.note("%s idle %v", s.name, idle) }

// batch is a batch of numbers that never travels.
type batch []int

func (b batch) Len() int { return len(b) }
func (b batch) AppendEncoded(dst []byte, from int) ([]byte, int, error) {
	return dst, from, errors.New("not to be encoded")
}

func (b batch) Release() {}

type reader struct{ out operator.Collector[int] }

func (r reader) Batch(b operator.Batch) error {
	for _, v := range b.(batch) {
		if err := r.out.Collect(v, int64(v)); err != nil {
			return err
		}
	}
	return nil
}
func (reader) Encoded([]byte) error { return errors.New("not to be encoded") }

// writer sends each record as a batch when it is flushed.
type writer struct {
	ch   operator.Channel
	open batch
}

func (w *writer) Collector() any { return operator.Collector[int](w) }
func (w *writer) Collect(v int, _ int64) error {
	w.open = append(w.open, v)
	return nil
}

func (w *writer) Flush() error {
	if len(w.open) == 0 {
		return nil
	}
	b := w.open
	w.open = nil
	return w.ch.Send(b)
}

func link(name string, i operator.Instance, parent int) task.Link {
	return task.Link{Instance: i, Parent: parent, Runtime: &operator.Runtime{
		Operator: graph.Operator{UID: name, Name: name}, Stats: &operator.Stats{},
	}}
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

// fixture is a running task a → b with one output of each.
type fixture struct {
	task    *task.Task
	senders []*exchange.Local
	out     *exchange.Inbox
	d       *diary
	done    chan error
}

func config(d *diary) task.Config {
	return task.Config{
		Vertex: "v", Parallelism: 1, Sent: &task.Counter{}, Snapshots: &snapshot.Writer{}, Clock: systemClock{},
		Logger: slog.New(slog.DiscardHandler), Reporter: d,
	}
}

func (f *fixture) run(t *testing.T, cfg task.Config) {
	f.task = task.New(cfg)
	require.NoError(t, f.task.Open(t.Context(), false))
	f.done = make(chan error, 1)
	go func() { f.done <- f.task.Run(context.Background()) }()
	t.Cleanup(func() {
		f.task.Cancel()
		require.NotErrorIs(t, <-f.done, context.Canceled, "a task ends for a reason of its own")
		require.NoError(t, f.task.Close())
	})
}

func twoSteps(t *testing.T) *fixture {
	f := &fixture{d: newDiary(), out: exchange.NewInbox(1)}
	cfg := config(f.d)
	sender := exchange.NewLocal(f.out, 0)
	w := &writer{ch: cfg.Sent.Channel(sender)}
	b := &step{name: "b", d: f.d, out: w}
	a := &step{name: "a", d: f.d, out: b}
	cfg.Chain = []task.Link{link("a", a, -1), link("b", b, 0)}
	cfg.Inbox = exchange.NewInbox(2)
	for ch := range 2 {
		f.senders = append(f.senders, exchange.NewLocal(cfg.Inbox, ch))
		cfg.Readers = append(cfg.Readers, reader{a})
	}
	cfg.Outputs = []task.Output{{From: 1, Writer: w, Senders: []exchange.Sender{sender}, Names: []string{"c[0]"}}}
	f.run(t, cfg)
	return f
}

// next waits for the next element of the output.
func (f *fixture) next(t *testing.T) exchange.Element {
	t.Helper()
	deadline := time.After(patience)
	for {
		if _, e, ok := f.out.Poll(); ok {
			e.Done()
			return e
		}
		select {
		case <-f.out.Wake():
		case <-deadline:
			require.Fail(t, "nothing comes out", "%q", f.d.all())
		}
	}
}

func TestRecordsBeforeWatermarksBeforeBarriers(t *testing.T) {
	f := twoSteps(t)
	require.NoError(t, f.senders[0].Send(batch{1, 2}))
	require.NoError(t, f.senders[0].Watermark(10))
	require.NoError(t, f.senders[1].Watermark(20))
	for _, s := range f.senders {
		require.NoError(t, s.Barrier(barrier.Barrier{Checkpoint: 1}))
	}
	require.NoError(t, f.senders[0].Send(batch{3}))
	f.d.wait(t, "acked 1")
	var records []int
	e := f.next(t)
	for ; e.Kind == exchange.Data; e = f.next(t) {
		records = append(records, e.Batch.(batch)...)
	}
	require.Equal(t, []int{1, 2}, records)
	require.Equal(t, exchange.Watermark, e.Kind)
	require.Equal(t, int64(10), e.Watermark)
	require.Equal(t, exchange.Barrier, f.next(t).Kind)
	require.Equal(t, batch{3}, f.next(t).Batch)
}

func TestEndGoesFromOperatorToOperator(t *testing.T) {
	f := twoSteps(t)
	for _, s := range f.senders {
		require.NoError(t, s.Watermark(operator.MaxWatermark))
		require.NoError(t, s.End())
	}
	f.d.wait(t, "ended")
	require.Equal(t, []string{
		"activity 0", "a watermark max", "a end", "b record 1000", "b watermark max", "b end", "ended",
	}, f.d.all())
	require.Equal(t, batch{1000, 1000}, f.next(t).Batch)
	require.Equal(t, operator.MaxWatermark, f.next(t).Watermark)
	require.Equal(t, exchange.End, f.next(t).Kind)
	// Barriers go on, and one is enough.
	require.NoError(t, f.senders[1].Barrier(barrier.Barrier{Checkpoint: 4}))
	require.Equal(t, uint64(4), f.next(t).Barrier.Checkpoint)
	f.d.wait(t, "acked 4")
}

func TestIdlenessGoesDownTheChain(t *testing.T) {
	f := twoSteps(t)
	require.NoError(t, f.senders[0].Watermark(10))
	require.NoError(t, f.senders[1].Idle(true))
	f.d.wait(t, "b watermark 10")
	require.Equal(t, int64(10), f.next(t).Watermark)
	require.NoError(t, f.senders[0].Idle(true))
	f.d.wait(t, "b idle true")
	require.Equal(t, exchange.Idle, f.next(t).Kind)
	require.NoError(t, f.senders[1].Watermark(30))
	require.NoError(t, f.senders[1].Idle(false))
	f.d.wait(t, "b watermark 30")
	f.d.wait(t, "b idle false")
	require.Equal(t, int64(30), f.next(t).Watermark)
	require.Equal(t, exchange.Active, f.next(t).Kind)
}

// assigner makes watermarks of the records it gets, one below the largest.
type assigner struct {
	step
	largest int64
}

func (a *assigner) Input() any { return operator.Collector[int](a) }
func (a *assigner) Collect(v int, ts int64) error {
	a.largest = max(a.largest, ts)
	return a.out.Collect(v, ts)
}
func (a *assigner) CurrentWatermark(time.Time) (int64, bool) { return a.largest - 1, false }

func TestAssignerReplacesWatermarks(t *testing.T) {
	f := &fixture{d: newDiary()}
	cfg := config(f.d)
	b := &step{name: "b", d: f.d}
	a := &assigner{step: step{name: "a", d: f.d, out: b}}
	cfg.Chain = []task.Link{link("a", a, -1), link("b", b, 0)}
	cfg.Inbox, cfg.Readers = exchange.NewInbox(1), []operator.Reader{reader{a}}
	f.run(t, cfg)
	s := exchange.NewLocal(cfg.Inbox, 0)
	require.NoError(t, s.Watermark(500))
	f.d.wait(t, "a watermark 500")
	require.NoError(t, s.Send(batch{7}))
	f.d.wait(t, "b watermark 6")
	require.NotContains(t, f.d.all(), "b watermark 500")
}

// alarm is an operator with a processing-time timer.
type alarm struct {
	step
	at int64
}

func (a *alarm) NextTimer() (int64, bool) { return a.at, a.at > 0 }
func (a *alarm) OnProcessingTime(now int64) error {
	if now < a.at {
		a.d.note("too early")
	}
	a.at = 0
	a.d.note("alarm")
	return a.out.Collect(77, 0)
}

func TestTimersFireWithoutInput(t *testing.T) {
	f := &fixture{d: newDiary()}
	cfg := config(f.d)
	b := &step{name: "b", d: f.d}
	a := &alarm{step: step{name: "a", d: f.d, out: b}, at: time.Now().Add(30 * time.Millisecond).UnixMilli()}
	cfg.Chain = []task.Link{link("a", a, -1), link("b", b, 0)}
	cfg.Inbox, cfg.Readers = exchange.NewInbox(1), []operator.Reader{reader{a}}
	f.run(t, cfg)
	f.d.wait(t, "b record 77")
	require.Equal(t, []string{"activity 0", "alarm", "b record 77"}, f.d.all())
}

func TestPostedWorkRunsOnTheTask(t *testing.T) {
	f := twoSteps(t)
	f.task.Post(func() error { f.d.note("posted"); return nil })
	f.d.wait(t, "posted")
	f.task.Post(func() error { return operator.Fatal(errors.New("posted failure")) })
	f.d.wait(t, "failed: posted failure")
}

func TestNothingIsPostedAfterTheEnd(t *testing.T) {
	f := twoSteps(t)
	f.task.Finish()
	require.NoError(t, <-f.done)
	f.done <- nil
	f.task.Post(func() error { f.d.note("too late"); return nil })
	require.NotContains(t, f.d.all(), "too late")
}

// fetcher is a source that fetches what it is told.
type fetcher struct {
	step
	feed chan any
}

func (s *fetcher) Input() any { return nil }
func (s *fetcher) Fetch(ctx context.Context) (any, error) {
	select {
	case v, ok := <-s.feed:
		if !ok {
			return nil, io.EOF
		}
		if err, failed := v.(error); failed {
			return nil, err
		}
		if v == "panic" {
			panic("fetch panics")
		}
		return v, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *fetcher) Emit(v any, _ int) (bool, error)          { return false, s.out.Collect(v.(int), 0) }
func (s *fetcher) CurrentWatermark(time.Time) (int64, bool) { return operator.MinWatermark, false }

func newSource(t *testing.T) (*fixture, *fetcher) {
	f := &fixture{d: newDiary()}
	cfg := config(f.d)
	b := &step{name: "b", d: f.d}
	a := &fetcher{step: step{name: "a", d: f.d, out: b}, feed: make(chan any)}
	cfg.Chain = []task.Link{link("a", a, -1), link("b", b, 0)}
	f.run(t, cfg)
	return f, a
}

func TestSourceStopsAtItsBarrier(t *testing.T) {
	f, src := newSource(t)
	src.feed <- 1
	f.d.wait(t, "b record 1")
	f.task.Trigger(barrier.Barrier{Checkpoint: 1, Stop: true})
	f.d.wait(t, "acked 1")
	src.feed <- 2 // is fetched and stays where it is
	f.task.Trigger(barrier.Barrier{Checkpoint: 2, Stop: true})
	f.d.wait(t, "acked 2")
	require.NotContains(t, f.d.all(), "b record 2")
	f.task.Resume()
	f.d.wait(t, "b record 2")
	f.task.Trigger(barrier.Barrier{Checkpoint: 2})
	f.task.Trigger(barrier.Barrier{Checkpoint: 3})
	f.d.wait(t, "acked 3")
	close(src.feed)
	f.d.wait(t, "ended")
}

func TestFailuresOfFetch(t *testing.T) {
	t.Run("error", func(t *testing.T) {
		f, src := newSource(t)
		src.feed <- errors.New("broker is away")
		f.d.wait(t, "failed: operator a: read the input: broker is away")
	})
	t.Run("panic", func(t *testing.T) {
		f, src := newSource(t)
		src.feed <- "panic"
		f.d.wait(t, "failed: operator a: read the input: panic: fetch panics")
		err := <-f.done
		require.Contains(t, task.Stack(err), "task_test.go")
		f.done <- err
	})
}

func TestClass(t *testing.T) {
	cause := errors.New("cause")
	opened := func(err error) error {
		return &task.Error{Operator: "o", Doing: "open", Err: fmt.Errorf("restore: %w", err)}
	}
	lost := &statebackend.LostError{Name: "f", Err: cause}
	require.Equal(t, operator.ClassRestart, task.Class(opened(cause)))
	require.Equal(t, operator.ClassStorage, task.Class(opened(&statebackend.StorageError{Op: "fetch f", Err: cause})))
	require.Equal(t, operator.ClassDataLoss, task.Class(opened(lost)), "trying again does not bring it back")
	require.Equal(t, operator.ClassFatal, task.Class(opened(fmt.Errorf("%w: key codec", statebackend.ErrSchema))))
	require.Equal(t, operator.ClassFatal, task.Class(opened(statebackend.ErrDroppedState)))
	require.Equal(t, operator.ClassFatal, task.Class(operator.Fatal(opened(lost))))
}
