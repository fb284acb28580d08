package watermark

import (
	"math"
	"time"
)

// None is the watermark before the first record.
const None int64 = math.MinInt64

// DefaultIdleTimeout is how long a split must have been caught up without a record before it is left out.
const DefaultIdleTimeout = 30 * time.Second

// Strategy says how watermarks follow from timestamps. Use [BoundedOutOfOrder] or [Monotonous]; the zero value makes none.
type Strategy struct {
	enabled    bool
	outOfOrder int64 // milliseconds
	idle       time.Duration
}

// BoundedOutOfOrder expects a record to be at most d behind the latest one of its split.
func BoundedOutOfOrder(d time.Duration) Strategy {
	return Strategy{enabled: true, outOfOrder: max(d.Milliseconds(), 0), idle: DefaultIdleTimeout}
}

// Monotonous expects timestamps that never go back within a split.
func Monotonous() Strategy { return BoundedOutOfOrder(0) }

// WithIdleTimeout changes how long a split must have been caught up without a record before it holds back no longer; the default
// is [DefaultIdleTimeout]. Elapsed time alone makes no split idle: its source must have looked and found nothing.
func (s Strategy) WithIdleTimeout(d time.Duration) Strategy {
	s.idle = d
	return s
}

// WithoutIdleness makes silent splits hold back event time for ever.
func (s Strategy) WithoutIdleness() Strategy {
	s.idle = 0
	return s
}

// Enabled reports whether the strategy makes watermarks.
func (s Strategy) Enabled() bool { return s.enabled }

// IdleTimeout returns the time after which a silent split is idle; 0 means never.
func (s Strategy) IdleTimeout() time.Duration { return s.idle }

// After returns the watermark that follows from the largest timestamp seen; None gives None.
func (s Strategy) After(largest int64) int64 {
	if !s.enabled || largest < None+s.outOfOrder+1 {
		return None
	}
	return largest - s.outOfOrder - 1
}
