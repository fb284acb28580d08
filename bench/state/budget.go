package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// rounds is how many runs in memory and under the budget take turns.
const rounds = 4

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
	// The two have storage of their own, since each deletes what it no longer needs.
	q, err := newPlace(ctx, o.dir)
	if err != nil {
		return err
	}
	defer q.close()
	bounded, err := open[int64](ctx, q, size/4)
	if err != nil {
		return err
	}
	for i := range o.budget {
		if err := bounded.values.Put(uint64(i), 1); err != nil {
			return err
		}
		if i%(o.budget/16) == 0 {
			if err := bounded.checkpoint(ctx); err != nil {
				return err
			}
		}
	}
	if err := bounded.checkpoint(ctx); err != nil {
		return err
	}
	o.load /= rounds
	if _, err := count(ctx, bounded, o); err != nil { // until as many deltas are there as there will be
		return err
	}
	fmt.Printf("\nrunning count of %d uniform keys, a checkpoint every second, budget %d MB; CPU time per record, of the task alone and of all\n\n", o.budget, size/4>>20)
	fmt.Println("| in memory | task | all | a quarter in memory | task | all | ratio by the clock | by the task's CPU time | by all | of the records, over the budget |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|")
	turns := func() error {
		for range rounds {
			all := rate{}
			if !o.bounded {
				if all, err = count(ctx, s, o); err != nil {
					return err
				}
			}
			part, err := count(ctx, bounded, o)
			if err != nil {
				return err
			}
			fmt.Printf("| %.0f/s | %v | %v | %.0f/s | %v | %v | %.0f %% | %.0f %% | %.0f %% | %.0f %% |\n", all.perSecond, all.task, all.process, part.perSecond, part.task, part.process,
				100*part.perSecond/all.perSecond, 100*float64(all.task)/float64(part.task), 100*float64(all.process)/float64(part.process), 100*part.over)
		}
		return nil
	}
	if err := profiled(o.profile, turns); err != nil {
		return err
	}
	fmt.Printf("\nover the budget at the end: %d bytes; %d segments\n", bounded.Pressure().Excess, len(bounded.last.GetSegments()))
	return errors.Join(s.shut(), bounded.shut())
}

// rate is how fast records were counted, and the CPU time that one took: of the thread that counts, and of the process.
type rate struct {
	perSecond     float64
	task, process time.Duration
	over          float64
}

// count counts as fast as it can.
func count(ctx context.Context, s *state[int64], o options) (rate, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	none := rate{}
	var done chan result
	var number uint64
	began, cpu, own := time.Now(), cpuTime(), timeOf(ownThread)
	next := began.Add(time.Second)
	records, over := 0, 0
	keys := make([]uint64, 32) // as many as an operator is told of at a time
	for time.Since(began) < o.load {
		for range 32 {
			for i := range keys {
				keys[i] = random(o.budget)
			}
			if s.Expects() {
				s.Expect(keys)
			}
			for _, k := range keys {
				v, ok, err := s.values.Get(k)
				if err != nil || !ok {
					return none, fmt.Errorf("key %d: found %v: %w", k, ok, err)
				}
				if err := s.values.Put(k, v+1); err != nil {
					return none, err
				}
			}
			records += len(keys)
			if s.Over() {
				over += len(keys)
			}
		}
		if err := s.mail(); err != nil {
			return none, err
		}
		if done != nil {
			select {
			case r := <-done:
				done = nil
				if err := s.complete(ctx, number, r); err != nil {
					return none, err
				}
			default:
			}
		}
		if done == nil && time.Now().After(next) {
			next = next.Add(time.Second)
			number, done = s.freeze(ctx)
		}
	}
	took, used := time.Since(began), timeOf(ownThread)-own
	if done != nil {
		if err := s.complete(ctx, number, <-done); err != nil {
			return none, err
		}
	}
	n := time.Duration(records)
	return rate{float64(records) / took.Seconds(), used / n, (cpuTime() - cpu) / n, float64(over) / float64(records)}, nil
}

// cpuTime is the user and system time of this process so far. On a machine that does other work it tells more than the clock.
func cpuTime() time.Duration { return timeOf(unix.RUSAGE_SELF) }

func timeOf(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
