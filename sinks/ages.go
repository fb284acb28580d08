package sinks

import (
	"sync"
	"time"

	"github.com/weir-stream/weir/operator"
)

// TimeLimited is implemented by sinks whose system ends a transaction after some time.
type TimeLimited interface {
	// TransactionTimeout is after how long; it is asked for after Open.
	TransactionTimeout() time.Duration
}

// ages follows how old a sink's transactions are.
type ages struct {
	mu      sync.Mutex
	figures *operator.Transactions // nil when nobody asks
	timeout time.Duration
	current time.Time            // zero without an open transaction
	pending map[uint64]time.Time // by the checkpoint that prepared it
}

func (a *ages) begin(figures *operator.Transactions, timeout time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.figures, a.timeout, a.pending = figures, timeout, map[uint64]time.Time{}
	a.publish()
}

func (a *ages) begun() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current = time.Now()
	a.publish()
}

// prepared notes that the open transaction is prepared, or ended when nothing was in it.
func (a *ages) prepared(checkpoint uint64, pending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pending && a.pending != nil {
		a.pending[checkpoint] = a.current
	}
	a.current = time.Time{}
	a.publish()
}

func (a *ages) committed(checkpoint uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, checkpoint)
	a.publish()
}

// publish tells the oldest. The lock is held.
func (a *ages) publish() {
	if a.figures == nil {
		return
	}
	oldest := a.current
	for _, at := range a.pending {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	a.figures.Set(oldest, a.timeout)
}
