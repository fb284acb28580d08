package exchange

import (
	"sync/atomic"
	"time"
)

// blocked remembers since when a sender has waited for its consumer. Only a sender that has to wait touches it.
type blocked struct{ since atomic.Int64 } // nanoseconds since the epoch; 0 while it does not wait

// begin notes that the wait begins.
func (b *blocked) begin() { b.since.CompareAndSwap(0, time.Now().UnixNano()) }

func (b *blocked) end() {
	if b.since.Load() != 0 {
		b.since.Store(0)
	}
}

// Blocked returns for how long the sender has been waiting for its consumer to work off what is on its way; 0 when it does not. It may
// be called from any goroutine.
func (b *blocked) Blocked() time.Duration {
	if at := b.since.Load(); at != 0 {
		return max(1, time.Since(time.Unix(0, at)))
	}
	return 0
}
