package main

import (
	"context"
	"errors"
	"fmt"
)

// guardInput is read by all workloads that a guard compares, so that it is written once.
const guardInput = "small"

// guard compares the chosen workloads with the hand-written program, in as many rounds as one needs to come to the ratio, and returns an
// error when none of them does. One good round is proof that nothing has become slow; bad ones may be the machine's.
func (b *bench) guard(ctx context.Context, chosen []workload) error {
	in, err := fill(ctx, b.broker, guardInput, b.records)
	if err != nil {
		return err
	}
	var slow []error
	for _, w := range chosen {
		if _, ok := in.want[w.name]; !ok || w.local {
			return fmt.Errorf("%s is no workload for a guard", w.name)
		}
		best := 0.0
		for round := 0; round < b.rounds && best < b.atLeast; round++ {
			var per [2]float64
			for i, e := range []engine{handwritten, weir} {
				r, err := b.measure(ctx, e, w, in, fmt.Sprintf("bench-guard-%s-%s-%d", w.name, e.name, round))
				if err != nil {
					return fmt.Errorf("%s, %s: %w", w.name, e.name, err)
				}
				per[i] = r.recordsPerCPUSecond
			}
			fmt.Printf("%s, round %d: %.0f records per CPU-second of %.0f of the hand-written program's: %.2f\n", w.name, round+1, per[1], per[0], per[1]/per[0])
			best = max(best, per[1]/per[0])
		}
		if best < b.atLeast {
			slow = append(slow, fmt.Errorf("%s: the best of %d rounds is %.2f of the hand-written program's records per CPU-second, less than %.2f", w.name, b.rounds, best, b.atLeast))
		}
	}
	return errors.Join(slow...)
}
