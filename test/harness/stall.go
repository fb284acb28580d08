package harness

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const stallTick = 10 * time.Millisecond

// WatchStalls watches until the test ends how punctually this machine runs a process that has next to nothing to do. The function that it
// returns tells by how much a wake-up was late at worst: what a bound on a duration has to allow for, since nobody can keep it
// on a machine that stands still.
func WatchStalls(t testing.TB) (worst func() time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var late atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(stallTick)
		defer ticker.Stop()
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			late.Store(max(late.Load(), int64(time.Since(last)-stallTick)))
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return func() time.Duration { return time.Duration(late.Load()) }
}
