package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// curve measures a state of n keys.
func curve(ctx context.Context, o options, n int) error {
	p, err := newPlace(ctx, o.dir)
	if err != nil {
		return err
	}
	defer p.close()
	s, err := open[string](ctx, p, 0)
	if err != nil {
		return err
	}
	value := func() string {
		return fmt.Sprintf("%016x", random(1<<62)) + strings.Repeat("v", max(0, o.valueSize-16))
	}
	for i := range n {
		if err := s.values.Put(uint64(i), value()); err != nil {
			return err
		}
	}
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	live := p.written.Load()
	changes := max(1, int(o.share*float64(n)))

	cpu := cpuTime()
	without, alone, err := underLoad(ctx, s, o, n, changes, value, false)
	if err != nil {
		return err
	}
	cpuWithout := cpuTime() - cpu
	if err := s.checkpoint(ctx); err != nil {
		return err
	}
	s.pauses, s.writes = nil, nil
	stopped := gcPauses()
	cpu = cpuTime()
	with, beside, err := underLoad(ctx, s, o, n, changes, value, true)
	if err != nil {
		return err
	}
	cpuWith := cpuTime() - cpu
	stop := gcPauses().since(stopped)
	ratio, err := amortised(ctx, s, o, n, changes, value)
	if err != nil {
		return err
	}
	pauses, writes, most := s.pauses, s.writes, s.most
	handle := s.last
	if err := s.shut(); err != nil {
		return err
	}
	p.restart()
	runtime.GC()

	began := time.Now()
	s, err = open[string](ctx, p, 0, handle)
	if err != nil {
		return err
	}
	opened := time.Since(began)
	if _, ok, err := s.values.Get(random(n)); !ok || err != nil {
		return fmt.Errorf("a key is missing after the restore: %w", err)
	}
	first := time.Since(began)
	fmt.Printf("| %d | %v | %v | %v | %v | %v | %v | %.2f | %.2f | %.1f %% | %.2f | %.2f | %v | %v | %v | %v |\n", n,
		quantile(pauses, 0.5), quantile(pauses, 0.99), quantile(pauses, 1), quantile(alone, 0.99), quantile(beside, 0.99), stop.most, ratio, float64(most)/float64(live),
		100*with/without, cpuWithout.Seconds()/o.load.Seconds(), cpuWith.Seconds()/o.load.Seconds(), opened.Round(10*time.Microsecond), first.Round(10*time.Microsecond), quantile(writes, 0.5), quantile(writes, 1))
	return s.shut()
}

// underLoad offers changes evenly over each second and returns the changes made per second, and how long each hundredth of a second's
// changes took.
func underLoad(
	ctx context.Context, s *state[string], o options, n, changes int, value func() string, checkpoints bool,
) (perSecond float64, took []time.Duration, err error) {
	const slices = 100 // of a second
	var done chan result
	var number uint64
	began := time.Now()
	made, second := 0, time.Second
	for i := 0; time.Since(began) < o.load; i++ {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / slices)); wait > 0 {
			time.Sleep(wait)
		}
		slice := time.Now()
		for range (changes*(i+1))/slices - (changes*i)/slices {
			k := random(n)
			if _, _, err := s.values.Get(k); err != nil {
				return 0, nil, err
			}
			if err := s.values.Put(k, value()); err != nil {
				return 0, nil, err
			}
			made++
		}
		took = append(took, time.Since(slice))
		if !checkpoints {
			continue
		}
		if done != nil {
			select {
			case r := <-done:
				done = nil
				if err := s.complete(ctx, number, r); err != nil {
					return 0, nil, err
				}
			default:
			}
		}
		if done == nil && time.Since(began) >= second {
			second += time.Second
			number, done = s.freeze(ctx)
		}
	}
	all := time.Since(began)
	if done != nil {
		if err := s.complete(ctx, number, <-done); err != nil {
			return 0, nil, err
		}
	}
	return float64(made) / all.Seconds(), took, nil
}

// amortised takes checkpoints of a second's changes each, as fast as they are written, until the base was merged some times, and returns
// the bytes written per byte changed; 0 when it is left out.
func amortised(ctx context.Context, s *state[string], o options, n, changes int, value func() string) (float64, error) {
	if o.sweeps == 0 {
		return 0, nil
	}
	changed := uint64(0)
	// It begins and ends with the end of a merge: when nothing of the base is from before its predecessor was whole.
	merges, whole := -1, s.next
	for range 100_000 {
		keys := map[uint64]struct{}{}
		for range changes {
			k := random(n)
			keys[k] = struct{}{}
			if err := s.values.Put(k, value()); err != nil {
				return 0, err
			}
		}
		if err := s.checkpoint(ctx); err != nil {
			return 0, err
		}
		changed += uint64(len(keys)) * uint64(8+o.valueSize)
		if s.oldestBase() > whole {
			whole = s.next
			if merges++; merges == 0 {
				s.place.written.Store(0)
				changed = 0
			}
			if merges == o.sweeps {
				return float64(s.place.written.Load()) / float64(changed), nil
			}
		}
	}
	return 0, fmt.Errorf("no merge in sight")
}
