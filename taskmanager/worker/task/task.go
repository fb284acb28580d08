package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/barrier"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/snapshot"
)

// Link is one operator of the chain.
type Link struct {
	Instance operator.Instance
	// Parent is the index of the link whose records it gets; -1 for the first.
	Parent int
	// Runtime is what the instance gets at Open; the task adds Fail and Post.
	Runtime *operator.Runtime
	// Committables are the restored transactions that the instance has to finish.
	Committables []*snapshotv1.Committable
	// Restored are the same transactions in their order, when what they wrote is kept.
	Restored []operator.Restored
}

// Output is the producing end of one edge.
type Output struct {
	// From is the index of the link whose records it carries.
	From    int
	Writer  operator.Writer
	Senders []exchange.Sender
	// Names are the tasks that the senders lead to, for people; they may be left out.
	Names []string
}

// Reporter takes what a task tells about itself. Its methods are called from any goroutine and do not block for long.
type Reporter interface {
	Acked(ack *workerv1.CheckpointAck)
	Declined(checkpoint uint64, reason string)
	// Committed tells that everything prepared up to the checkpoint is committed.
	Committed(checkpoint uint64)
	// Activity tells that something changed after the snapshot of the checkpoint, once for each.
	Activity(since uint64)
	// Ended tells that the task's input is exhausted.
	Ended()
	// Failed tells why the task ended, once.
	Failed(err error)
}

// Config is what a task is made of.
type Config struct {
	Vertex               string
	Subtask, Parallelism int
	Chain                []Link
	// Inbox and Readers, one for each of its channels, are the input; nil for a source.
	Inbox   *exchange.Inbox
	Readers []operator.Reader
	// Inputs are the tasks behind the inbox's channels, for people; they may be left out.
	Inputs  []string
	Outputs []Output
	// Sent counts what goes to the outputs' channels.
	Sent *Counter
	// Snapshots makes the handles of the task's snapshots.
	Snapshots *snapshot.Writer
	// Inspect leaves restored transactions alone: the task is opened to look at them.
	Inspect bool
	// Restored is the checkpoint that the task's state is from; 0 for none of this job.
	Restored uint64
	Clock    operator.Clock
	Logger   *slog.Logger
	Reporter Reporter
	// FirstRecord, if set, is called when the task has processed its first record.
	FirstRecord func()
}

// Task is one subtask. Open, Fence, Run and Close are called once each, in this order, by one goroutine after the other; everything
// else may be called from any goroutine.
type Task struct {
	cfg  Config
	name string // of the chain
	mail mailbox
	// failed is closed with the first failure, canceled with the order to stop at once, finish with that to stop cleanly.
	failed   chan struct{}
	canceled chan struct{}
	finish   chan struct{}
	mu       sync.Mutex
	failure  error
	stopped  bool // canceled is closed
	finished bool // finish is closed

	stats    counters
	activity activity

	// The rest belongs to the task's goroutine.
	source  operator.SourceInstance
	emits   int // records that it emits before anything else is done
	fetches chan fetch
	fetched fetch
	// have tells that fetched is not worked off; exhausted that Fetch has returned io.EOF.
	have, exhausted bool
	// paused tells that a stop barrier was sent and nothing may follow it.
	paused bool

	aligner *barrier.Aligner
	// alignedSince is when the present alignment began.
	alignedSince time.Time
	inputs       *barrier.Watermarks
	endedInputs  int
	channelEnded []bool

	links      []link
	outputs    []output
	timers     []timerOwner
	committers []committer
	pushers    []operator.Pusher
	rewritten  []*workerv1.Replacement
	// assigns tells that some operator makes watermarks of its own.
	assigns bool
	// unflushed tells that outputs may hold records or watermarks that were not sent, since the time unflushedSince.
	unflushed      bool
	unflushedSince time.Time

	// met tells that the first record has been processed.
	met          bool
	ended        bool
	changed      bool
	lastSnapshot uint64
	// current is the link that is being called, -1 for the chain as a whole.
	current int

	background sync.WaitGroup
	lastAsync  chan struct{} // closed when the background part of the last snapshot has ended
}

// link is the task's view of one operator of the chain.
type link struct {
	Link
	uid, name  string
	watermarks operator.WatermarkSource // nil unless it makes its own
	idle       operator.IdleListener    // nil unless it wants to know
	listener   operator.CheckpointListener
	// delivered is the last watermark given to it, out what its consumers get.
	delivered int64
	out       mark
	upIdle    bool
	opened    bool
}

// mark is a watermark with idleness.
type mark struct {
	wm   int64
	idle bool
}

// output is the task's view of one edge.
type output struct {
	Output
	sent mark
}

type timerOwner struct {
	link int
	operator.TimerOwner
}

type committer struct {
	link int
	operator.Committer
}

// New returns a task. It does no I/O.
func New(cfg Config) *Task {
	t := &Task{
		cfg: cfg, mail: newMailbox(), failed: make(chan struct{}), canceled: make(chan struct{}), finish: make(chan struct{}),
		lastSnapshot: cfg.Restored, current: -1,
	}
	names := make([]string, len(cfg.Chain))
	for i, l := range cfg.Chain {
		op := l.Runtime.Operator
		names[i] = op.Name
		if names[i] == "" {
			names[i] = op.UID
		}
		k := link{Link: l, uid: op.UID, name: names[i], delivered: operator.MinWatermark, out: mark{wm: operator.MinWatermark}}
		if w, ok := l.Instance.(operator.WatermarkSource); ok {
			k.watermarks, t.assigns = w, true
		}
		k.idle, _ = l.Instance.(operator.IdleListener)
		k.listener, _ = l.Instance.(operator.CheckpointListener)
		if o, ok := l.Instance.(operator.TimerOwner); ok {
			t.timers = append(t.timers, timerOwner{i, o})
		}
		if p, ok := l.Instance.(operator.Pusher); ok {
			t.pushers = append(t.pushers, p)
		}
		if c, ok := l.Instance.(operator.Committer); ok {
			t.committers = append(t.committers, committer{i, c})
		}
		t.links = append(t.links, k)
		l.Runtime.Fail = t.Fail
		l.Runtime.Post = t.Post
	}
	t.name = strings.Join(names, " → ")
	for _, o := range cfg.Outputs {
		t.outputs = append(t.outputs, output{Output: o, sent: mark{wm: operator.MinWatermark}})
	}
	if cfg.Inbox == nil {
		t.source, _ = cfg.Chain[0].Instance.(operator.SourceInstance)
		t.emits = firstEmit
	} else {
		n := cfg.Inbox.Channels()
		t.aligner, t.inputs, t.channelEnded = barrier.NewAligner(n), barrier.NewWatermarks(n), make([]bool, n)
	}
	return t
}

// Vertex and Subtask name the task.
func (t *Task) Vertex() string { return t.cfg.Vertex }

// Subtask returns the task's number in its vertex.
func (t *Task) Subtask() int { return t.cfg.Subtask }

// Open opens the operators and finishes restored transactions. With settleOnly only transactional sinks are opened.
func (t *Task) Open(ctx context.Context, settleOnly bool) error {
	err := t.protect(func() error {
		for i := range t.links {
			if _, commits := t.links[i].Instance.(operator.Committer); settleOnly && !commits {
				continue
			}
			t.current = i
			t.activity.is(opening, i)
			t.links[i].opened = true
			if err := t.links[i].Instance.Open(ctx, t.links[i].Runtime); err != nil {
				return t.errorf("open", err)
			}
		}
		for _, c := range t.committers {
			if t.cfg.Inspect {
				break
			}
			t.current = c.link
			t.activity.is(recovering, c.link)
			if err := t.recover(ctx, c); err != nil {
				return t.errorf("commit the restored transactions", err)
			}
		}
		t.current = -1
		t.activity.is(waitsForInput, -1)
		return nil
	})
	return err
}

// Fence ends what former attempts left open; scope returns the share of a sink.
func (t *Task) Fence(ctx context.Context, scope func(uid string) operator.Scope) error {
	return t.protect(func() error {
		for _, c := range t.committers {
			t.current = c.link
			t.activity.is(fencing, c.link)
			if err := c.RecoverAbort(ctx, scope(t.links[c.link].uid)); err != nil {
				return t.errorf("fence former attempts", err)
			}
		}
		t.current = -1
		t.activity.is(waitsForInput, -1)
		return nil
	})
}

// Close closes the operators that Open was called on, also those that did not open.
func (t *Task) Close() error {
	var errs []error
	for i := range t.links {
		if !t.links[i].opened {
			continue
		}
		errs = append(errs, t.protect(func() error {
			t.current = i
			if err := t.links[i].Instance.Close(); err != nil {
				return t.errorf("close", err)
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// Fail fails the task. The first failure counts.
func (t *Task) Fail(err error) {
	t.mu.Lock()
	first := t.failure == nil && !t.stopped
	if first {
		t.failure = err
		close(t.failed)
	}
	t.mu.Unlock()
	if first {
		t.closeSenders(false)
		t.cfg.Reporter.Failed(err)
	}
}

// Post runs fn on the task's goroutine between batches.
func (t *Task) Post(fn func() error) {
	t.mail.post(func(context.Context) error { return fn() })
}

// Trigger starts a checkpoint at a source task; other tasks wait for its barriers.
func (t *Task) Trigger(b barrier.Barrier) {
	t.mail.post(func(ctx context.Context) error { return t.trigger(ctx, b) })
}

// Abort drops the alignment of every checkpoint up to n.
func (t *Task) Abort(n uint64) {
	t.mail.post(func(ctx context.Context) error {
		if t.aligner == nil {
			return nil
		}
		return t.apply(ctx, 0, t.aligner.Abort(n))
	})
}

// Completed tells that checkpoint n is complete.
func (t *Task) Completed(n uint64) {
	t.Post(func() error { return t.completed(n) })
}

// Resume lets a source go on after a stop barrier.
func (t *Task) Resume() {
	t.Post(func() error { t.paused = false; return nil })
}

// Finish makes Run return once the present batch is worked off.
func (t *Task) Finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.finished {
		t.finished = true
		close(t.finish)
	}
}

// Cancel makes Run return as soon as possible.
func (t *Task) Cancel() {
	t.mu.Lock()
	if !t.stopped {
		t.stopped = true
		close(t.canceled)
	}
	t.mu.Unlock()
	t.closeSenders(false)
}

func (t *Task) closeSenders(clean bool) {
	for _, o := range t.cfg.Outputs {
		for _, s := range o.Senders {
			s.Close(clean)
		}
	}
}

// protect turns a panic on the task's goroutine into an error that names the operator.
func (t *Task) protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = t.errorf("run", &PanicError{Value: r, Stack: string(debug.Stack())})
		}
	}()
	return fn()
}

// protect turns a panic of fn into a *PanicError.
func protect(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &PanicError{Value: r, Stack: string(debug.Stack())}
		}
	}()
	return fn()
}

func (t *Task) operatorName() string {
	if t.current < 0 || t.current >= len(t.links) {
		return t.name
	}
	return t.links[t.current].name
}

func (t *Task) errorf(doing string, err error) error {
	return &Error{Operator: t.operatorName(), Doing: doing, Err: err}
}

// String names the task for people.
func (t *Task) String() string { return fmt.Sprintf("%s[%d]", t.cfg.Vertex, t.cfg.Subtask) }

// Parallelism returns the number of subtasks of the task's vertex.
func (t *Task) Parallelism() int { return t.cfg.Parallelism }
