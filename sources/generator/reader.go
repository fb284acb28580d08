package generator

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/weir-stream/weir/sources"
)

const (
	// batchRecords is how many records one Fetch allows at most.
	batchRecords = 4096
	// pollInterval is how often a waiting Fetch looks at the clock, which may be another than the machine's.
	pollInterval = 20 * time.Millisecond
)

// reader makes the records of the splits s with s mod parallelism = subtask.
//
// Fetch only counts how many records may be made; it shares nothing with the other methods after Open.
type reader[T any] struct {
	source Source[T]
	rc     sources.ReaderContext
	splits []split
	next   int  // index of the split of the next record
	even   bool // no split is a round behind another, so they take turns

	// Of Fetch: when it began, how many records there are for it (when bounded) and how many it has allowed.
	began     time.Time
	available uint64
	allowed   uint64
}

// split is one owned split.
type split struct {
	number  int
	emitted uint64
	size    uint64 // when bounded
	out     int    // its number in the output
	known   bool   // out is set
}

// Open implements sources.Reader.
func (r *reader[T]) Open(_ context.Context, restored []sources.Position, _ bool) error {
	positions := make(map[string]uint64)
	for _, p := range restored {
		splits, n := binary.Uvarint(p.Value)
		emitted, m := binary.Uvarint(p.Value[max(n, 0):])
		if n <= 0 || m <= 0 || n+m != len(p.Value) {
			return fmt.Errorf("%w: the position of split %q is malformed", ErrSettings, p.Key)
		}
		if splits != uint64(r.source.splits) {
			return fmt.Errorf("%w: the job has state of %d splits and now asks for %d; the number cannot change", ErrSettings, splits, r.source.splits)
		}
		positions[p.Key] = emitted
	}
	for s := r.rc.Subtask; s < r.source.splits; s += r.rc.Parallelism {
		sp := split{number: s, emitted: positions[strconv.Itoa(s)], size: r.source.size(s)}
		if sp.size > sp.emitted {
			r.available += sp.size - sp.emitted
		}
		r.splits = append(r.splits, sp)
	}
	r.began = r.rc.Now()
	return nil
}

// Fetch implements sources.Reader.
func (r *reader[T]) Fetch(ctx context.Context) (any, error) {
	bounded := r.source.count > 0
	for {
		left := uint64(batchRecords)
		if bounded {
			if left = min(left, r.available-r.allowed); left == 0 {
				return nil, io.EOF
			}
		}
		if n := min(left, r.due()); n > 0 {
			r.allowed += n
			return &allowance{left: n}, nil
		}
		timer := time.NewTimer(pollInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// due returns how many records the rate allows beyond those that Fetch has allowed.
func (r *reader[T]) due() uint64 {
	if len(r.splits) == 0 {
		return 0
	}
	if r.source.rate == 0 {
		return batchRecords
	}
	share := r.source.rate * float64(len(r.splits)) / float64(r.source.splits)
	total := uint64(max(r.rc.Now().Sub(r.began).Seconds()*share, 0)) + 1
	if total <= r.allowed {
		return 0
	}
	return total - r.allowed
}

// allowance is what Fetch hands to Emit.
type allowance struct{ left uint64 }

// Emit implements sources.Reader.
func (r *reader[T]) Emit(fetched any, out sources.Output[T], limit int) (bool, error) {
	a, ok := fetched.(*allowance)
	if !ok || a == nil {
		return false, nil
	}
	now := r.rc.Now()
	for ; limit > 0 && a.left > 0; limit-- {
		s := r.take()
		if s == nil {
			break
		}
		if !s.known {
			s.out, s.known = out.Split(strconv.Itoa(s.number)), true
		}
		n := uint64(s.number) + s.emitted*uint64(r.source.splits)
		// Before the record is passed on: a position includes it as soon as it may be downstream.
		s.emitted++
		a.left--
		if err := out.Collect(s.out, r.source.record(n), r.source.timestamp(n, now.UnixMilli())); err != nil {
			return false, err
		}
	}
	r.report(out, now, a.left)
	return a.left > 0, nil
}

// report tells the lag, and when everything due is emitted that no split has more.
func (r *reader[T]) report(out sources.Output[T], now time.Time, left uint64) {
	if r.source.count > 0 {
		var lag uint64
		for _, s := range r.splits {
			lag += s.size - min(s.emitted, s.size)
		}
		r.rc.Counters.Lag(int64(lag))
	}
	if left > 0 || r.source.rate == 0 {
		return
	}
	for _, s := range r.splits {
		if s.known {
			out.CaughtUp(s.out, now)
		}
	}
}

// take returns the split with the lowest next number; nil when all are exhausted.
func (r *reader[T]) take() *split {
	if r.even {
		s := &r.splits[r.next]
		if r.source.count == 0 || s.emitted < s.size {
			r.next = (r.next + 1) % len(r.splits)
			return s
		}
	}
	lowest, highest := -1, uint64(0)
	for i, s := range r.splits {
		highest = max(highest, s.emitted)
		if r.source.count > 0 && s.emitted >= s.size {
			continue
		}
		if lowest < 0 || s.emitted < r.splits[lowest].emitted {
			lowest = i
		}
	}
	if lowest < 0 {
		return nil
	}
	// From the first split of the lowest round on they take turns if no other split is ahead of the next round.
	r.even = highest <= r.splits[lowest].emitted+1
	for _, s := range r.splits[lowest:] {
		r.even = r.even && s.emitted == r.splits[lowest].emitted
	}
	r.next = (lowest + 1) % len(r.splits)
	return &r.splits[lowest]
}

// Positions implements sources.Reader.
func (r *reader[T]) Positions() ([]sources.Position, error) {
	ps := make([]sources.Position, len(r.splits))
	for i, s := range r.splits {
		value := binary.AppendUvarint(nil, uint64(r.source.splits))
		ps[i] = sources.Position{Key: strconv.Itoa(s.number), Value: binary.AppendUvarint(value, s.emitted)}
	}
	return ps, nil
}

// CheckpointCompleted implements sources.Reader.
func (r *reader[T]) CheckpointCompleted(uint64) {}

// Close implements sources.Reader.
func (r *reader[T]) Close() error { return nil }
