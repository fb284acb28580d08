// Command state measures the state backend of one task as its state grows: the pause of the task at a barrier, bytes written per
// checkpoint beside the bytes changed, the rate with checkpoints beside the rate without, the time to the first record after a restore,
// and what a memory budget costs. See bench/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"
)

type options struct {
	keys      []int
	valueSize int
	share     float64       // of the keys, changed per second
	load      time.Duration // of each run with and without checkpoints
	sweeps    int
	budget    int // keys of the run under a budget
	bounded   bool
	dir       string
	profile   string
}

func main() {
	var o options
	keys := flag.String("keys", "100000,1000000,10000000", "numbers of keys")
	flag.IntVar(&o.valueSize, "value", 100, "bytes of a value")
	flag.Float64Var(&o.share, "share", 0.01, "share of the keys that changes per second")
	flag.DurationVar(&o.load, "load", 20*time.Second, "duration of each run under load")
	flag.IntVar(&o.sweeps, "merges", 3, "merges of the base over which written bytes are averaged; 0 leaves them out")
	flag.IntVar(&o.budget, "budget-keys", 2_000_000, "keys of the run under a memory budget; 0 leaves it out")
	flag.BoolVar(&o.bounded, "bounded-only", false, "under a memory budget, count under the budget only")
	flag.StringVar(&o.dir, "dir", "", "directory for state files (default: a temporary one)")
	flag.StringVar(&o.profile, "cpuprofile", "", "file for a CPU profile: of the runs with numbers of keys, or without any of the turns under a memory budget")
	flag.Parse()
	for s := range strings.SplitSeq(*keys, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil && s != "" {
			fmt.Fprintln(os.Stderr, "keys:", err)
			os.Exit(2)
		}
		if n > 0 {
			o.keys = append(o.keys, n)
		}
	}
	if err := run(context.Background(), o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// profiled runs fn under a CPU profile, if there is a file for it.
func profiled(path string, fn func() error) (err error) {
	if path == "" {
		return fn()
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return fn()
}

func run(ctx context.Context, o options) error {
	if len(o.keys) > 0 {
		if err := profiled(o.profile, func() error { return curves(ctx, o) }); err != nil {
			return err
		}
		o.profile = ""
	}
	if o.budget > 0 {
		return budget(ctx, o)
	}
	return nil
}

func curves(ctx context.Context, o options) error {
	fmt.Printf("values of %d B, %.1f %% of the keys changed per second, a checkpoint every second\n\n", o.valueSize, 100*o.share)
	fmt.Println("| keys | pause p50 | p99 | max | 10 ms of changes without checkpoints, p99 | with | GC pause max | written / changed | most on storage / live | rate with / without | CPU seconds per second without | with | restore: open | first record | checkpoint p50 | max |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, n := range o.keys {
		if err := curve(ctx, o, n); err != nil {
			return fmt.Errorf("%d keys: %w", n, err)
		}
	}
	return nil
}
