// Command bench compares Weir with what an engineer would write by hand: Kafka to Kafka, exactly once, on the same machine and broker,
// with the same client and library functions. Programs run in turn; each run's output is compared with what a plain loop over the input
// makes of it. Absolute figures depend on the machine; the ratios are the result.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weir-stream/weir/bench/internal/curve"
	"github.com/weir-stream/weir/bench/peers"
	"github.com/weir-stream/weir/internal/kafkatest"
)

func main() {
	b := bench{span: time.Minute}
	flag.IntVar(&b.records, "records", 10_000_000, "records in each input topic; bids have a third of it")
	flag.IntVar(&b.rounds, "rounds", 7, "runs of each program")
	flag.DurationVar(&b.interval, "interval", time.Second, "checkpoint and commit interval")
	flag.StringVar(&b.out, "out", "", "CSV file for the results")
	flag.StringVar(&b.profile, "profile", "", "directory for CPU and heap profiles of Weir's workers, which cost a little")
	only := flag.String("workloads", "", "names separated by commas; all by default")
	with := flag.String("peers", "", "other engines to run in turn, separated by commas: flink, flink-rocksdb, kafka-streams")
	flag.BoolVar(&b.latency, "latency", false, "measure how long records take until they are visible, in place of the workloads")
	flag.BoolVar(&b.growth, "growth", false, "measure how throughput changes as one thing grows, in place of the workloads; -workloads chooses curves")
	flag.Float64Var(&b.atLeast, "at-least", 0, "only find out whether one of the rounds comes to so many times the hand-written program's records per CPU-second")
	flag.StringVar(&b.pictures, "pictures", "", "directory for the pictures of the curves")
	flag.StringVar(&b.redraw, "redraw", "", "CSV file of -growth of which pictures are drawn, without measuring")
	flag.BoolVar(&b.quick, "quick", false, "6 million records and one run of each program; of latencies, 15 s each; of curves, 2 million records and no large sizes")
	flag.Parse()
	if b.growth {
		setUnlessGiven("records", func() { b.records = 5_000_000 })
		setUnlessGiven("interval", func() { b.interval = growthInterval })
	}
	if b.quick {
		b.span = 15 * time.Second
		setUnlessGiven("records", func() { b.records = map[bool]int{true: 2_000_000, false: 6_000_000}[b.growth] })
		setUnlessGiven("rounds", func() { b.rounds = 1 })
	}
	if *with != "" {
		b.with = strings.Split(*with, ",")
	}
	if *only != "" {
		b.only = strings.Split(*only, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx); err != nil {
		stop()
		log.Fatal(err) //nolint:gocritic // stop was called
	}
}

// setUnlessGiven calls set unless a flag is on the command line.
func setUnlessGiven(name string, set func()) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		set()
	}
}

// bench is the set-up that all runs share.
type bench struct {
	records, rounds int
	interval        time.Duration
	out             string
	profile         string
	only, with      []string
	peers           []*peers.Engine
	latency, growth bool
	quick           bool
	atLeast         float64
	pictures        string
	redraw          string
	span            time.Duration // of each latency
	dir             string
	broker          *kafkatest.Broker
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.redraw != "" {
		rows, err := curve.Read(b.redraw)
		if err != nil {
			return err
		}
		return b.draw(rows)
	}
	chosen, err := b.chosen()
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "weir-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	for _, pkg := range []string{"cmd/weir", "bench/handwritten", "bench/jobs"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(b.dir, filepath.Base(pkg)), "github.com/weir-stream/weir/"+pkg)
		if b.atLeast == 0 { // a test shares what other tests have built
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
	}
	if b.peers, err = peers.Prepare(ctx, b.dir, b.with); err != nil {
		return err
	}
	if b.broker, err = kafkatest.Start(ctx, kafkatest.Config{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.broker.Close()) }()
	about := machine(kafkatest.Version())
	for _, p := range b.peers {
		about = append(about, p.Name+": "+p.Version)
	}
	for _, line := range about {
		fmt.Println(line)
	}
	switch {
	case b.latency:
		return b.latencies(ctx, about)
	case b.growth:
		return b.grow(ctx, about)
	case b.atLeast > 0:
		return b.guard(ctx, chosen)
	}
	var all []comparison
	inputs := map[string]input{}
	for _, w := range chosen {
		if _, ok := inputs[w.input]; !ok {
			n := b.records
			if w.input == "bids" {
				n /= 3
			}
			if inputs[w.input], err = fill(ctx, b.broker, w.input, n); err != nil {
				return err
			}
		}
		c, err := b.compare(ctx, w, inputs[w.input])
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if err := printTable(os.Stdout, all); err != nil {
		return err
	}
	return writeCSV(b.out, about, rows(all))
}

func (b *bench) chosen() ([]workload, error) {
	if len(b.only) == 0 || b.growth {
		return workloads, nil
	}
	var out []workload
	for _, name := range b.only {
		all := append(slices.Clone(workloads), boundedCount)
		i := slices.IndexFunc(all, func(w workload) bool { return w.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no workload %q", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// compare runs a workload's engines in turn.
func (b *bench) compare(ctx context.Context, w workload, in input) (comparison, error) {
	c := comparison{workload: w, engines: b.engines(w), runs: map[string][]result{}}
	for round := range b.rounds {
		for _, e := range c.engines {
			r, err := b.measure(ctx, e, w, in, fmt.Sprintf("bench-%s-%s-%d", w.name, e.name, round))
			if err != nil {
				return c, fmt.Errorf("%s, %s: %w", w.name, e.name, err)
			}
			c.runs[e.name] = append(c.runs[e.name], r)
			fmt.Printf("%-16s %-16s round %d: %8.0f records per CPU-s, %8.0f per s, %5.0f MB, over %.1f s from %.1f s on\n",
				w.name, e.name, round+1, r.recordsPerCPUSecond, r.recordsPerSecond, r.peakMB, r.span.Seconds(), r.before.Seconds())
		}
	}
	return c, nil
}
