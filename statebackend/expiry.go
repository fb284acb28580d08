package statebackend

import (
	"math"

	snapshotv1 "github.com/weir-stream/weir/gen/snapshot/v1"
	"github.com/weir-stream/weir/statebackend/segment"
)

// stamp is the time of an entry's last write: milliseconds since the epoch times 2, plus 1 for event time.
type stamp int64

const noStamp = stamp(segment.NoStamp)

// Kinds of time.
const (
	processingTime = 0
	eventTime      = 1
)

func stampOf(ms int64, kind int) stamp {
	const most = math.MaxInt64 >> 1
	return stamp(min(max(ms, -most), most)<<1 | int64(kind))
}

func (s stamp) ms() int64 { return int64(s) >> 1 }
func (s stamp) kind() int { return int(s & 1) }

// horizon tells which stamps have expired. It only ever moves on, so that what has expired stays expired whatever happens to the clock
// or to the time to live.
type horizon struct {
	// kind is the kind of time of new stamps.
	kind int
	// through has for each kind of time the stamp up to which entries have expired, in milliseconds; NoTime for none.
	through [2]int64
	// since is the stamp that counts for entries without one; noStamp while there is none, and they live.
	since stamp
	// changed is what entries with a stamp of the other kind count from, in milliseconds; NoTime when they live.
	changed int64
}

// gone reports whether an entry with a stamp has expired.
func (h *horizon) gone(s stamp) bool {
	if s == noStamp {
		if s = h.since; s == noStamp {
			return false
		}
	}
	kind := s.kind()
	if s.ms() <= h.through[kind] {
		return true
	}
	return kind != h.kind && h.changed != NoTime && h.changed <= h.through[h.kind]
}

// countsFrom returns the time from which the time to live of an entry with a stamp counts; math.MaxInt64 while that is not known.
func (h *horizon) countsFrom(s stamp) int64 {
	if s == noStamp {
		s = h.since
	}
	switch {
	case s == noStamp:
		return math.MaxInt64
	case s.kind() == h.kind:
		return s.ms()
	case h.changed == NoTime:
		return math.MaxInt64
	default:
		return h.changed
	}
}

// expiry is how the entries of a state expire. A state that never had a time to live has none.
type expiry struct {
	horizon
	ttl TTL // After is 0 when the state has none any more
	// now is the stamp of what is written; noStamp while the clock is not known.
	now stamp
	// view is what reads go by. A record ahead of the watermark does not see what will have expired at its time, though a record before
	// it still may.
	view horizon
	// reap removes expired entries from the table in memory, those that segments answer for and those that no snapshot has. Entries
	// changed after epoch upTo are in no segment.
	reap func(upTo uint64, visits int) (visited, removed int)
}

// agingOf returns how the entries of a state expire, nil when neither has it a time to live nor had it one: stamps go on being written
// after it was taken away, in case that it comes back.
func (c *core) agingOf(name string, ttls []TTL) *expiry {
	x := &expiry{now: noStamp}
	for _, t := range ttls {
		x.ttl = t
	}
	had := false
	for _, snapshot := range c.cfg.Restored {
		for _, s := range snapshot.GetSchemas() {
			if s.GetExpiry() == nil || s.GetName() != name || s.GetKind() == kindDropped {
				continue
			}
			if h := horizonOf(s.GetExpiry()); had {
				x.join(h)
			} else {
				x.horizon, had = h, true
			}
		}
	}
	if x.ttl.After == 0 {
		if !had {
			return nil
		}
		x.ttl.EventTime = x.kind == eventTime
	}
	kind := processingTime
	if x.ttl.EventTime {
		kind = eventTime
	}
	switch {
	case !had:
		x.horizon = horizon{kind: kind, through: [2]int64{NoTime, NoTime}, since: noStamp, changed: NoTime}
	case kind != x.kind:
		x.kind, x.changed = kind, NoTime
	}
	c.aging = append(c.aging, x)
	return x
}

// join makes h the horizon of what two instances had.
func (h *horizon) join(o horizon) {
	h.through[processingTime] = max(h.through[processingTime], o.through[processingTime])
	h.through[eventTime] = max(h.through[eventTime], o.through[eventTime])
	if h.since == noStamp || o.since == noStamp {
		h.since = noStamp
	} else {
		h.since = max(h.since, o.since)
	}
	if h.changed == NoTime || o.changed == NoTime {
		h.changed = NoTime
	} else {
		h.changed = max(h.changed, o.changed)
	}
}

// set moves the clock to now; written is the time of what is written.
func (x *expiry) set(now, written int64) {
	x.advance(now, written)
	x.view = x.horizon
	if after := x.ttl.After.Milliseconds(); after > 0 && written > math.MinInt64/2 {
		x.view.through[x.kind] = max(x.view.through[x.kind], written-after)
	}
}

func (x *expiry) advance(now, written int64) {
	through, after := &x.through[x.kind], x.ttl.After.Milliseconds()
	if now == NoTime {
		if *through != NoTime {
			written = max(written, *through+max(after, 1)) // it was known once
		}
		x.now = noStamp
		if written != NoTime {
			x.now = stampOf(written, x.kind)
		}
		return
	}
	if x.since == noStamp {
		x.since = stampOf(now, x.kind)
	}
	if x.changed == NoTime {
		x.changed = now
	}
	if after > 0 && now > math.MinInt64/2 {
		*through = max(*through, now-after)
	}
	if *through != NoTime {
		written = max(written, *through+1) // also when the clock was put back
	}
	x.now = stampOf(written, x.kind)
}

// later returns the later one of now and the stamp of an entry that has not expired.
func (x *expiry) later(s stamp) stamp {
	if s != noStamp && s.kind() == x.kind && s > x.now {
		return s
	}
	return x.now
}

func horizonOf(e *snapshotv1.StateExpiry) horizon {
	h := horizon{through: [2]int64{NoTime, NoTime}, since: noStamp, changed: NoTime}
	if e.GetEventTime() {
		h.kind = eventTime
	}
	if e.ProcessingExpiredThroughMs != nil {
		h.through[processingTime] = e.GetProcessingExpiredThroughMs()
	}
	if e.EventExpiredThroughMs != nil {
		h.through[eventTime] = e.GetEventExpiredThroughMs()
	}
	if e.UnstampedSinceMs != nil {
		kind := processingTime
		if e.GetUnstampedEventTime() {
			kind = eventTime
		}
		h.since = stampOf(e.GetUnstampedSinceMs(), kind)
	}
	if e.ChangedAtMs != nil {
		h.changed = e.GetChangedAtMs()
	}
	return h
}

// schema returns the horizon as a snapshot has it.
func (h *horizon) schema(ttl TTL) *snapshotv1.StateExpiry {
	known := func(ms int64) *int64 {
		if ms == NoTime {
			return nil
		}
		return &ms
	}
	e := &snapshotv1.StateExpiry{
		TtlMs: ttl.After.Milliseconds(), EventTime: ttl.EventTime, RefreshedByReads: ttl.RefreshedByReads,
		ProcessingExpiredThroughMs: known(h.through[processingTime]), EventExpiredThroughMs: known(h.through[eventTime]),
		ChangedAtMs: known(h.changed),
	}
	if h.since != noStamp {
		e.UnstampedSinceMs, e.UnstampedEventTime = known(h.since.ms()), h.since.kind() == eventTime
	}
	return e
}
