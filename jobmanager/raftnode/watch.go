package raftnode

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// watchTicks is the number of looks within the limit of an operation.
const watchTicks = 20

// watch knows which operations are running, and which of them hang.
type watch struct {
	mu      sync.Mutex
	running map[*operation]struct{}
}

type operation struct {
	what  string
	looks int // at which it was still running
	limit int // in looks
}

func newWatch() *watch { return &watch{running: map[*operation]struct{}{}} }

// begin notes an operation that is allowed factor times the usual limit; the result ends it.
func (w *watch) begin(what string, factor int) (end func()) {
	op := &operation{what: what, limit: factor * watchTicks}
	w.mu.Lock()
	w.running[op] = struct{}{}
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		delete(w.running, op)
		w.mu.Unlock()
	}
}

// look is called at every tick and returns an operation that hangs, if there is one. It counts ticks, not time: a process that was
// stopped as a whole for a while has not been waiting for its disk.
func (w *watch) look() (what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for op := range w.running {
		if op.looks++; op.looks > op.limit {
			what = op.what
		}
	}
	return what
}

// watchHangs reports an operation that hangs. Where the library's main loop is stuck in it, its heartbeats would go on.
func (n *Node) watchHangs(context.Context) {
	t := time.NewTicker(n.cfg.WriteHang / watchTicks)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if what := n.watch.look(); what != "" {
				n.giveUp(fmt.Errorf("%w: %s in %s does not come back", ErrHangs, what, n.cfg.Dir))
				return
			}
		case <-n.done:
			return
		}
	}
}

// giveUp reports an error after which this process must not go on. It takes the member off the network first: whoever waits for it
// shall know at once.
func (n *Node) giveUp(err error) {
	n.SetTrouble("fatal", err.Error())
	n.stream.silence()
	_ = n.stream.Close()
	select {
	case n.fatal <- err:
	default: // reported already
	}
}

// checkLeader looks, while this member leads, whether the library's main loop and the disk still answer: its heartbeats come from
// elsewhere and prove nothing. A leader with nothing to write writes a mark from time to time. On any member it looks whether a disk
// that was full has space again.
func (n *Node) checkLeader(ctx context.Context) {
	n.every(ctx, n.cfg.WriteHang/4, func(context.Context) {
		n.disk.look()
		if !n.IsLeader() {
			return
		}
		end := n.watch.begin("the raft loop", 1)
		// The cheapest question that only the main loop answers; the answer is that a leader cannot be bootstrapped.
		_ = n.raft.BootstrapCluster(raft.Configuration{}).Error()
		end()
		if n.IsLeader() && n.disk.idleFor() >= n.cfg.WriteHang/4 {
			_ = n.disk.mark()
		}
	})
}
