package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks/ledger"
)

// errClosed is what a commit request gets that a closing sink did not come to.
var errClosed = errors.New("sink closed before the commit was decided")

// committer commits prepared transactions in order on a goroutine of its own. The ledger is shared with the task's goroutine, which
// touches it once per barrier.
type committer struct {
	commit  func(context.Context, Committable) error
	release func(Committable) // nil when nobody wants to know
	// committed is told of each checkpoint whose transaction is committed.
	committed func(checkpoint uint64)
	durable   bool
	ordered   bool // nothing is committed behind a failure
	uid       string
	limit     time.Duration
	target    string // for people
	waits     *operator.Waits
	logger    *slog.Logger
	wake      chan struct{} // of size 1: a full one already wakes
	wait      sync.WaitGroup

	mu       sync.Mutex
	ledger   ledger.Ledger[Committable]
	requests []commitRequest
	closed   bool
}

type commitRequest struct {
	n    uint64
	done func(error)
}

// start runs the goroutine until ctx ends.
func (c *committer) start(ctx context.Context) {
	c.wait.Add(1)
	go func() {
		defer c.wait.Done()
		c.run(ctx)
	}()
}

// stop waits for the goroutine, whose context has ended, and answers what it did not come to.
func (c *committer) stop() {
	c.wait.Wait()
	c.mu.Lock()
	c.closed = true
	left := c.requests
	c.requests = nil
	c.mu.Unlock()
	for _, r := range left {
		r.done(errClosed)
	}
}

func (c *committer) prepare(n uint64, p Committable) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledger.Prepare(n, p)
}

// snapshot returns what the snapshot of barrier n lists, and the newest checkpoint known to be complete.
func (c *committer) snapshot(n uint64) (pending []ledger.Entry[Committable], completed uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pending, err = c.ledger.Snapshot(n)
	return pending, c.ledger.Completed(), err
}

func (c *committer) request(n uint64, done func(error)) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.requests = append(c.requests, commitRequest{n, done})
	}
	c.mu.Unlock()
	if closed {
		done(errClosed)
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.mu.Lock()
		var r commitRequest
		if len(c.requests) > 0 {
			r = c.requests[0]
			c.requests = c.requests[1:]
		}
		c.mu.Unlock()
		if r.done != nil {
			r.done(c.serve(ctx, r.n))
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
	}
}

// serve commits everything up to checkpoint n. On an error the later ones are still tried, unless order counts or output is lost, and the
// first error is returned.
func (c *committer) serve(ctx context.Context, n uint64) error {
	c.free(func() []Committable { return c.ledger.Complete(n) })
	var first error
	for ctx.Err() == nil {
		c.mu.Lock()
		e := c.ledger.Next()
		c.mu.Unlock()
		if e == nil {
			break
		}
		failed, end := c.waits.BeginTries(fmt.Sprintf("%s to commit checkpoint %d", c.target, e.Checkpoint))
		err := retry(ctx, c.limit, failed, func(ctx context.Context) error {
			if err := faultpoint.Err(faultpoint.CommitDue); err != nil {
				return err
			}
			return c.commit(ctx, e.Committable)
		})
		end()
		if err != nil {
			err = c.describe("commit", e.Checkpoint, err)
			c.mu.Lock()
			// A restore commits or writes again what failed, and what was written later must not lie there before it.
			c.ledger.Failed(e, errors.Is(err, ErrLost) || c.ordered)
			c.mu.Unlock()
			if first == nil {
				first = err
			} else {
				c.logger.Error("another commit ended with an error", "checkpoint", e.Checkpoint, "error", err)
			}
			continue
		}
		faultpoint.Hit(faultpoint.Committed)
		if c.committed != nil {
			c.committed(e.Checkpoint)
		}
		c.free(func() []Committable { return c.ledger.Committed(e) })
	}
	if first != nil {
		return first
	}
	if ctx.Err() != nil {
		return errClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ledger.Settled(n) {
		return fmt.Errorf("sink %s: an earlier commit ended with an error", c.uid)
	}
	return nil
}

func (c *committer) free(step func() []Committable) {
	c.mu.Lock()
	freed := step()
	c.mu.Unlock()
	if c.release == nil {
		return
	}
	for _, f := range freed {
		c.release(f)
	}
}

// describe adds sink and checkpoint to a commit's error and makes a loss or an undecidable outcome stop the job.
func (c *committer) describe(doing string, checkpoint uint64, err error) error {
	var lost *LostError
	if errors.As(err, &lost) {
		filled := *lost
		if filled.Sink == "" {
			filled.Sink = c.uid
		}
		if filled.Checkpoint == 0 {
			filled.Checkpoint = checkpoint
		}
		if c.durable && filled.Aborted && !filled.Unknown {
			return &rewritableError{filled.Error()}
		}
		return &filled
	}
	err = fmt.Errorf("sink %s: %s (checkpoint %d): %w", c.uid, doing, checkpoint, err)
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) {
		return operator.DataLoss(err)
	}
	if errors.Is(err, ErrRetriable) && operator.ClassOf(err) == operator.ClassRestart && !errors.Is(err, operator.ErrRefused) {
		return operator.Unavailable(err) // the system does not say what became of it
	}
	return err
}

const (
	retryFirst = 20 * time.Millisecond
	retryMax   = time.Second
)

// retry repeats do until it is decided: nil, lost, unknown, or an error that says that repeating cannot mend it. After limit it
// gives the last error back; a restore goes on from there. Each error before that is told to failed.
func retry(life context.Context, limit time.Duration, failed func(error), do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(life, limit)
	defer cancel()
	for pause := retryFirst; ; pause = min(2*pause, retryMax) {
		err := do(ctx)
		if err == nil {
			failed(nil)
			return nil
		}
		if errors.Is(err, ErrLost) || errors.Is(err, ErrUnknown) || errors.Is(err, operator.ErrRefused) ||
			!operator.ClassOf(err).Passing() {
			return err
		}
		failed(err)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			if life.Err() != nil {
				return fmt.Errorf("%w; not tried again: %w", err, context.Cause(life))
			}
			return fmt.Errorf("%w; given up after %s", err, limit)
		case <-timer.C:
		}
	}
}
