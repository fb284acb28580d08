package segmentstore

import (
	"context"
	"sync"
	"time"
)

// pace bounds the rate of reads that share it. Its zero value bounds nothing.
type pace struct {
	rate int64 // bytes per second; 0 for no bound

	mu   sync.Mutex
	free time.Time // when all that was read before is paid for
}

// wait returns when n bytes that were read are paid for, or ctx has ended.
func (p *pace) wait(ctx context.Context, n int) error {
	if p.rate <= 0 {
		return nil
	}
	p.mu.Lock()
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	due := p.free.Sub(now)
	p.mu.Unlock()
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
