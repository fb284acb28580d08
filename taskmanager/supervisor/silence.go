package supervisor

import (
	"context"
	"sync/atomic"
	"time"
)

// silentLooks is how many looks in a row must find that nothing came from a worker for it to count as stalled.
const silentLooks = 8

// ear notes that something came from a worker.
type ear struct {
	heard  atomic.Bool
	deaf   chan struct{} // closed once nothing came for too long
	silent int           // looks in a row; of whoever looks
}

// stalled is closed once nothing came for too long; nil, which is never, for a worker to which nobody listens.
func (e *ear) stalled() <-chan struct{} { return e.deaf }

// listen has an ear looked after until the returned function is called.
func (s *Supervisor) listen(e *ear) (end func()) {
	e.deaf = make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ears[e] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.ears, e)
	}
}

// lookAfter looks at all workers at the same time, so that many of them wake this process no more often than one. Looks without a word since
// the former one are counted, rather than time, so that neither a jump of the wall clock nor our own standing still counts as silence of a
// worker.
func (s *Supervisor) lookAfter(ctx context.Context) {
	looks := time.NewTicker(s.cfg.StallTimeout / silentLooks)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		s.mu.Lock()
		for e := range s.ears {
			if e.silent++; e.heard.Swap(false) {
				e.silent = 0
			}
			if e.silent == silentLooks {
				close(e.deaf)
				delete(s.ears, e)
			}
		}
		s.mu.Unlock()
	}
}
