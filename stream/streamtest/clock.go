package streamtest

import (
	"sync/atomic"
	"time"

	"github.com/weir-stream/weir/operator"
)

// clock stands still until it is set. Helpers of the state backend may read it from their own goroutines.
type clock struct{ nanos atomic.Int64 }

var _ operator.Clock = (*clock)(nil)

// Now implements operator.Clock.
func (c *clock) Now() time.Time { return time.Unix(0, c.nanos.Load()).UTC() }

func (c *clock) set(t time.Time) { c.nanos.Store(t.UnixNano()) }
