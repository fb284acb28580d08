package main

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// budget measures a running count with uniform keys, in memory and with a quarter of the memory that it takes.
func budget(ctx context.Context, o options) error {
	p, err := newPlace(ctx, o.dir)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := open[int64](ctx, p, 0)
	if err != nil {
		return err
	}
	for i := range o.budget {
		if err := s.values.Put(uint64(i), 1); err != nil {
			return err
		}
	}
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	size := s.Bytes()
	all, allCPU, err := count(ctx, s, o)
	if err != nil {
		return err
	}
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	handle := s.last
	if err := s.shut(); err != nil {
		return err
	}
	bounded, err := open[int64](ctx, p, size/4, handle)
	if err != nil {
		return err
	}
	warm := o
	warm.load = o.load / 4
	if _, _, err := count(ctx, bounded, warm); err != nil {
		return err
	}
	part, partCPU, err := count(ctx, bounded, o)
	if err != nil {
		return err
	}
	fmt.Printf("\nrunning count of %d uniform keys, a checkpoint every second: %.0f/s in memory, %.0f/s with a budget of a quarter (%d MB): %.0f %% by the clock, %.0f %% by CPU time (%v and %v a record); over the budget at the end: %d bytes\n",
		o.budget, all, part, size/4>>20, 100*part/all, 100*float64(allCPU)/float64(partCPU), allCPU, partCPU, bounded.Pressure().Excess)
	return bounded.shut()
}

// count counts as fast as it can and returns records per second, and the CPU time of the process per record.
func count(ctx context.Context, s *state[int64], o options) (perSecond float64, perRecord time.Duration, err error) {
	var done chan result
	var number uint64
	began, cpu := time.Now(), cpuTime()
	next := began.Add(time.Second)
	records := 0
	for time.Since(began) < o.load {
		for range 1000 {
			k := random(o.budget)
			v, ok, err := s.values.Get(k)
			if err != nil || !ok {
				return 0, 0, fmt.Errorf("key %d: found %v: %w", k, ok, err)
			}
			if err := s.values.Put(k, v+1); err != nil {
				return 0, 0, err
			}
			records++
		}
		if err := s.mail(); err != nil {
			return 0, 0, err
		}
		if done != nil {
			select {
			case r := <-done:
				done = nil
				if err := s.complete(ctx, number, r); err != nil {
					return 0, 0, err
				}
			default:
			}
		}
		if done == nil && time.Now().After(next) {
			next = next.Add(time.Second)
			number, done = s.freeze(ctx)
		}
	}
	took := time.Since(began)
	if done != nil {
		if err := s.complete(ctx, number, <-done); err != nil {
			return 0, 0, err
		}
	}
	return float64(records) / took.Seconds(), (cpuTime() - cpu) / time.Duration(records), nil
}

// cpuTime is the user and system time of this process so far. On a machine that does other work it tells more than the clock.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
