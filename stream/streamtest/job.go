package streamtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/stream"
)

// maxRounds bounds how long a job is driven until it rests.
const maxRounds = 1_000_000

// commitTimeout bounds the wait for the commits of a checkpoint, which sinks make on goroutines of their own.
const commitTimeout = 10 * time.Second

// ErrRestless is returned for a job that does not come to rest, such as one that reads an endless source.
var ErrRestless = errors.New("the job does not come to rest; give its sources an end or a rate")

// ErrClosed is returned for a job that was closed.
var ErrClosed = errors.New("the job was closed")

// Option changes how a job is run.
type Option func(*config)

type config struct {
	start       time.Time
	parallelism int
	from        *Checkpoint
	logger      *slog.Logger
}

// At sets the clock; the default is 2020-01-01 00:00:00 UTC.
func At(t time.Time) Option { return func(c *config) { c.start = t } }

// Parallelism sets the parallelism of operators that choose none.
func Parallelism(n int) Option { return func(c *config) { c.parallelism = n } }

// From starts the job from a checkpoint.
func From(cp *Checkpoint) Option { return func(c *config) { c.from = cp } }

// Logger takes the job's messages; the default drops them.
func Logger(l *slog.Logger) Option { return func(c *config) { c.logger = cmp.Or(l, c.logger) } }

// Job is a running job. It is used by one goroutine. After an error every method returns that error.
type Job struct {
	program  *operator.Program
	clock    clock
	logger   *slog.Logger
	dir      string
	store    *store
	attempt  uint64
	number   uint64 // of the last checkpoint
	tasks    []*task
	byVertex map[string][]*task
	figures  map[string]*operator.Stats
	// handWatermark replaces the watermarks of sources when set.
	handWatermark *int64

	mu    sync.Mutex // helpers of instances post and fail from their own goroutines
	posts []func() error
	err   error
}

// Run runs a job to the end of its input and through a last checkpoint.
func Run(job func(*stream.Env) error, opts ...Option) error {
	j, err := Start(job, opts...)
	if err != nil {
		return err
	}
	err = j.Step()
	if err == nil && !j.Ended() {
		err = fmt.Errorf("the job is still waiting for input; end its sources, or use Start: %w", ErrRestless)
	}
	if err == nil && j.program.Graph.Checkpoints.Enabled {
		_, err = j.Checkpoint()
	}
	return errors.Join(err, j.Close())
}

// Start plans and starts a job. Nothing has been read yet when it returns.
func Start(job func(*stream.Env) error, opts ...Option) (*Job, error) {
	cfg := config{start: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), logger: slog.New(slog.DiscardHandler)}
	for _, o := range opts {
		o(&cfg)
	}
	program, err := stream.Plan(job, stream.PlanOptions{DefaultName: "test", Parallelism: cfg.parallelism})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "streamtest-")
	if err != nil {
		return nil, err
	}
	j := &Job{
		program: program, logger: cfg.logger, dir: dir, attempt: 1,
		store:    &store{files: &files{content: make(map[string][]byte)}, dir: dir, local: make(map[string]string)},
		byVertex: make(map[string][]*task), figures: make(map[string]*operator.Stats),
	}
	j.clock.set(cfg.start)
	if cfg.from != nil {
		j.store.files, j.attempt, j.number = cfg.from.files, cfg.from.attempt+1, cfg.from.number
	}
	if err := j.start(cfg.from); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// start builds the tasks from the last vertex to the first, so that consumers are there when their producers connect, and opens
// them.
func (j *Job) start(from *Checkpoint) error {
	vertices := j.program.Graph.Vertices
	for i := len(vertices) - 1; i >= 0; i-- {
		var tasks []*task
		for s := range vertices[i].Parallelism {
			t := &task{job: j, vertex: vertices[i], subtask: s, in: mark{wm: operator.MinWatermark}}
			if err := t.build(j.program); err != nil {
				return err
			}
			tasks = append(tasks, t)
		}
		j.byVertex[vertices[i].ID] = tasks
	}
	for _, v := range vertices {
		j.tasks = append(j.tasks, j.byVertex[v.ID]...)
	}
	ctx := context.Background()
	for _, t := range j.tasks {
		if err := t.open(ctx, j.program, from); err != nil {
			return err
		}
	}
	return errors.Join(j.recover(ctx, from), j.failure())
}

// recover commits what the checkpoint has prepared, everywhere, and then ends what former attempts left.
func (j *Job) recover(ctx context.Context, from *Checkpoint) error {
	err := j.committers(func(t *task, l *link, c operator.Committer) error {
		return c.RecoverCommit(ctx, from.committables(l.op.UID, t.subtask, t.vertex.Parallelism))
	})
	if err != nil {
		return err
	}
	return j.committers(func(t *task, l *link, c operator.Committer) error {
		scope := operator.Scope{Subtask: t.subtask, Parallelism: t.vertex.Parallelism}
		for a := uint64(1); a < j.attempt; a++ {
			scope.Attempts = append(scope.Attempts, operator.FormerAttempt{Attempt: a, Parallelism: t.vertex.Parallelism, Slots: l.op.TransactionSlots})
		}
		return c.RecoverAbort(ctx, scope)
	})
}

func (j *Job) committers(f func(*task, *link, operator.Committer) error) error {
	for _, t := range j.tasks {
		for i := range t.links {
			if c, ok := t.links[i].instance.(operator.Committer); ok {
				if err := f(t, &t.links[i], c); err != nil {
					return fmt.Errorf("operator %q: %w", t.links[i].op.Name, err)
				}
			}
		}
	}
	return nil
}

// Step reads all there is to read and handles it, until the job rests.
func (j *Job) Step() error { return j.drive(true) }

// drive handles what there is until nothing is left; sources are read when read is true.
func (j *Job) drive(read bool) error {
	for range maxRounds {
		if err := j.failure(); err != nil {
			return err
		}
		progress, err := j.round(read)
		if err != nil {
			j.fail(err)
			return err
		}
		if !progress {
			return j.failure()
		}
	}
	j.fail(ErrRestless)
	return ErrRestless
}

func (j *Job) round(read bool) (bool, error) {
	progress, err := j.runPosts()
	if err != nil {
		return false, err
	}
	for _, t := range j.tasks {
		fetched := false
		if read {
			if fetched, err = t.fetch(); err != nil {
				return false, err
			}
		}
		consumed, err := t.consume()
		if err != nil {
			return false, err
		}
		advanced, err := t.advance(j.clock.Now())
		if err != nil {
			return false, err
		}
		if err := t.flush(); err != nil {
			return false, err
		}
		progress = progress || fetched || consumed || advanced
	}
	return progress, nil
}

func (j *Job) runPosts() (bool, error) {
	j.mu.Lock()
	posts := j.posts
	j.posts = nil
	j.mu.Unlock()
	for _, fn := range posts {
		if err := fn(); err != nil {
			return false, err
		}
	}
	return len(posts) > 0, nil
}

// Now returns the processing time.
func (j *Job) Now() time.Time { return j.clock.Now() }

// AdvanceTime moves the clock. Timers and windows in processing time fire in order, each at its own time, and the job is driven to
// rest after each.
func (j *Job) AdvanceTime(d time.Duration) error {
	end := j.clock.Now().Add(d)
	if err := j.Step(); err != nil {
		return err
	}
	for {
		at, ok := j.nextTimer()
		if !ok || at > end.UnixMilli() {
			break
		}
		if due := time.UnixMilli(at); due.After(j.clock.Now()) {
			j.clock.set(due)
		}
		if err := j.fireTimers(j.clock.Now().UnixMilli()); err != nil {
			j.fail(err)
			return err
		}
		if err := j.Step(); err != nil {
			return err
		}
	}
	j.clock.set(end)
	return j.Step()
}

func (j *Job) timers(f func(*task, operator.TimerOwner) error) error {
	for _, t := range j.tasks {
		for _, l := range t.links {
			if o, ok := l.instance.(operator.TimerOwner); ok {
				if err := f(t, o); err != nil {
					return fmt.Errorf("operator %q: %w", l.op.Name, err)
				}
			}
		}
	}
	return nil
}

func (j *Job) nextTimer() (next int64, found bool) {
	_ = j.timers(func(_ *task, o operator.TimerOwner) error {
		if at, ok := o.NextTimer(); ok && (!found || at < next) {
			next, found = at, true
		}
		return nil
	})
	return next, found
}

func (j *Job) fireTimers(now int64) error {
	return j.timers(func(_ *task, o operator.TimerOwner) error {
		if at, ok := o.NextTimer(); !ok || at > now {
			return nil
		}
		return o.OnProcessingTime(now)
	})
}

// Ended reports whether all input has ended and been handled.
func (j *Job) Ended() bool {
	for _, t := range j.tasks {
		if !t.ended {
			return false
		}
	}
	return true
}

// Stats returns the figures of an operator, summed over its subtasks, by its uid.
func (j *Job) Stats(uid string) *operator.Stats { return j.stats(uid) }

func (j *Job) stats(uid string) *operator.Stats {
	if j.figures[uid] == nil {
		j.figures[uid] = &operator.Stats{}
	}
	return j.figures[uid]
}

// Checkpoint handles what has been read, takes a checkpoint and completes it: sinks commit what they wrote before it. Another job can
// be started from it with [From], also when this one has gone on or was closed.
func (j *Job) Checkpoint() (*Checkpoint, error) {
	if err := j.drive(false); err != nil {
		return nil, err
	}
	j.number++
	cp := &Checkpoint{number: j.number, attempt: j.attempt, files: j.store.files, operators: make(map[string][][]byte)}
	for _, t := range j.tasks {
		if err := t.snapshot(context.Background(), operator.Barrier{Checkpoint: j.number}, cp); err != nil {
			j.fail(err)
			return nil, err
		}
	}
	if err := j.complete(j.number); err != nil {
		j.fail(err)
		return nil, err
	}
	return cp, nil
}

// complete tells the instances that a checkpoint is completed and waits for the commits.
func (j *Job) complete(n uint64) error {
	for _, t := range j.tasks {
		for _, l := range t.links {
			if c, ok := l.instance.(operator.CheckpointListener); ok {
				if err := c.CheckpointCompleted(n); err != nil {
					return fmt.Errorf("operator %q: %w", l.op.Name, err)
				}
			}
		}
	}
	deadline := time.NewTimer(commitTimeout)
	defer deadline.Stop()
	return j.committers(func(_ *task, _ *link, c operator.Committer) error {
		done := make(chan error, 1) // the only result, taken or not
		c.Commit(n, func(err error) { done <- err })
		select {
		case err := <-done:
			return err
		case <-deadline.C:
			return fmt.Errorf("the commit of checkpoint %d takes longer than %s", n, commitTimeout)
		}
	})
}

// Close ends the job where it stands, as a crash would, and removes its files. What was not committed is not.
func (j *Job) Close() error {
	if errors.Is(j.failure(), ErrClosed) {
		return nil
	}
	var errs []error
	for _, t := range j.tasks {
		for _, l := range t.links {
			errs = append(errs, l.instance.Close())
		}
	}
	j.fail(ErrClosed)
	return errors.Join(append(errs, os.RemoveAll(j.dir))...)
}

// post is operator.Runtime's Post.
func (j *Job) post(fn func() error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.posts = append(j.posts, fn)
}

// fail is operator.Runtime's Fail. The first error stays.
func (j *Job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
}

func (j *Job) failure() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

var _ io.Closer = (*Job)(nil)
