package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	workerv1 "github.com/weir-stream/weir/gen/worker/v1"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
	"github.com/weir-stream/weir/taskmanager/worker/task"
)

// deployment is what Prepare has built.
type deployment struct {
	prepare    *workerv1.Prepare
	settleOnly bool
	dir        string
	// address is that of the data listener.
	address string
	// prepared tells that the end of phase one was told.
	prepared bool
	server   *exchange.Server
	dialer   *exchange.Dialer
	runners  []*runner
	// remote lists the senders to other workers.
	remote  []remoteSender
	started bool
	// old are the tasks of whose transactions' age was warned.
	old map[taskKey]bool
}

// runner is one task with what the worker knows of its progress.
type runner struct {
	task        *task.Task
	committable int
	running     bool
	// busy tells that Open or Fence has not returned yet.
	busy atomic.Bool
	// done is closed when the task's operators are closed; err is valid afterwards.
	done chan struct{}
	err  error
}

// remoteSender is a sender that is to be connected to the worker of a task.
type remoteSender struct {
	sender *exchange.Remote
	to     taskKey
	owner  *runner
}

type taskKey struct {
	vertex  string
	subtask int
}

// rewritten returns what the tasks have written again in the place of lost transactions.
func (d *deployment) rewritten() (out []*workerv1.Replacement) {
	for _, r := range d.runners {
		out = append(out, r.task.Rewritten()...)
	}
	return out
}

func (d *deployment) each(fn func(*runner)) {
	for _, r := range d.runners {
		fn(r)
	}
}

func (d *deployment) statistics() []*jobv1.TaskStatistics {
	s := make([]*jobv1.TaskStatistics, len(d.runners))
	for i, r := range d.runners {
		s[i] = r.task.Statistics()
	}
	return s
}

// run starts the task's goroutine.
func (r *runner) run(ctx context.Context) {
	r.running = true
	go func() {
		defer close(r.done)
		_ = r.task.Run(ctx) // a failure has been reported by the task itself
		// It counts whatever ended the run: one that is canceled may end with any error.
		r.err = r.task.Close()
	}()
}

// stop ends all tasks, closes their operators and then the exchange. Clean lets tasks end after their present batch; those that do
// not within half of the deadline are canceled.
func (d *deployment) stop(clean bool, deadline time.Duration) error {
	giveUp := time.NewTimer(deadline)
	defer giveUp.Stop()
	var stuck []string
	for _, r := range d.runners {
		switch {
		case !r.running && r.busy.Load():
			// It has had its time already, and nobody else may touch its operators meanwhile.
			stuck = append(stuck, r.task.String())
		case !r.running:
			r.running = true
			go func() {
				defer close(r.done)
				r.err = r.task.Close()
			}()
		case clean:
			r.task.Finish()
		default:
			r.task.Cancel()
		}
	}
	if clean {
		impatient := time.NewTimer(deadline / 2)
		defer impatient.Stop()
		for _, r := range d.runners {
			if !r.running {
				continue
			}
			select {
			case <-r.done:
			case <-impatient.C:
				impatient.Reset(0)
				r.task.Cancel()
			}
		}
	}
	for _, r := range d.runners {
		if !r.running {
			continue
		}
		select {
		case <-r.done:
		case <-giveUp.C:
			giveUp.Reset(0)
			select {
			case <-r.done:
			default:
				stuck = append(stuck, r.task.String())
			}
		}
	}
	if d.dialer != nil {
		d.dialer.Close()
	}
	if d.server != nil {
		d.server.Close(clean)
	}
	if len(stuck) > 0 {
		return fmt.Errorf("%w: %s", ErrStuck, strings.Join(stuck, ", "))
	}
	var errs []error
	for _, r := range d.runners {
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.task, r.err))
		}
	}
	return errors.Join(errs...)
}
