package exchange

import (
	"sync/atomic"
	"time"
)

// blocked remembers since when a sender has waited for its consumer. Only a sender that has to wait touches it.
type blocked struct{ since atomic.Pointer[time.Time] } // nil while it does not wait

// begin notes that the wait begins.
func (b *blocked) begin() {
	if b.since.Load() == nil {
		now := time.Now()
		b.since.Store(&now)
	}
}

func (b *blocked) end() {
	if b.since.Load() != nil {
		b.since.Store(nil)
	}
}

// Blocked returns for how long the sender has been waiting for its consumer to work off what is on its way; 0 when it does not. It may
// be called from any goroutine.
func (b *blocked) Blocked() time.Duration {
	if at := b.since.Load(); at != nil {
		return max(1, time.Since(*at))
	}
	return 0
}
