// Command handwritten is the yardstick of the benchmark: what an engineer would write by hand with franz-go for the same job, exactly
// once, and tuned: pools of fetched records, records to produce allocated by the thousand, large buffers, GOGC=400. It has no
// checkpoints, no state store, and no failure handling beyond exit.
//
// Where a partition needs nothing of the other (passthrough, json-projection), each has a client and a transactional id of its own, so
// that the commit of one overlaps the work of the other. Windows commit at window ends only, and read open windows again after a
// restart, which relies on timestamps that never go back. Counts are found again in the output.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"runtime/debug"
	"strings"
	"time"
)

type config struct {
	workload, in, out string
	brokers           []string
	partitions        int
	interval          time.Duration
}

func (c config) group() string { return c.out + "-handwritten" }

func main() {
	var c config
	flag.StringVar(&c.workload, "workload", "", "passthrough, window-count, running-count, json-projection or exchange")
	brokers := flag.String("brokers", "", "bootstrap servers")
	flag.StringVar(&c.in, "in", "", "input topic")
	flag.StringVar(&c.out, "out", "", "output topic")
	flag.IntVar(&c.partitions, "partitions", 2, "partitions of the input topic")
	flag.DurationVar(&c.interval, "interval", time.Second, "commit interval")
	flag.Parse()
	c.brokers = strings.Split(*brokers, ",")
	debug.SetGCPercent(400)
	log.Fatal(run(context.Background(), c))
}

func run(ctx context.Context, c config) error {
	switch c.workload {
	case "passthrough", "json-projection":
		errs := make(chan error)
		for partition := range c.partitions {
			go func() { errs <- each(ctx, c, int32(partition)) }()
		}
		return <-errs
	case "window-count":
		return windowCount(ctx, c)
	case "running-count":
		return counts(ctx, c, 1)
	case "exchange":
		return counts(ctx, c, every)
	default:
		return fmt.Errorf("there is no workload %q", c.workload)
	}
}
