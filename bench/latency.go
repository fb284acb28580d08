package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/weir-stream/weir/bench/internal/work"
)

const (
	// latencyRate is how many records per second are offered, evenly spaced.
	latencyRate = 20_000
	// latencyWarm is how long the load runs before it is measured.
	latencyWarm = 5 * time.Second
	// latencyGrace is how long the last records may take.
	latencyGrace = 30 * time.Second
)

// delivery is a way to deliver records.
type delivery struct {
	guarantee string
	interval  time.Duration // of checkpoints
}

func (d delivery) name() string { return fmt.Sprintf("%s, %s", d.guarantee, d.interval) }

var deliveries = []delivery{
	{"exactly-once", time.Second},
	{"exactly-once", 100 * time.Millisecond},
	{"exactly-once", 20 * time.Millisecond},
	{"at-least-once", time.Second},
}

// quantiles are the figures of a latency, the largest one at the end.
var quantiles = []struct {
	name string
	at   float64
}{{"p50_ms", 0.5}, {"p99_ms", 0.99}, {"p999_ms", 0.999}, {"max_ms", 1}}

// latencies measures how long it takes from when a record should be written to the input until a read_committed reader has it from the
// output. A record that the load could not write in time counts as late.
func (b *bench) latencies(ctx context.Context, about []string) error {
	rows := [][]string{}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "delivery, checkpoints\tp50 ms\tp99 ms\tp99.9 ms\tmax ms\trecords\t")
	for i, d := range deliveries {
		took, err := b.latencyOf(ctx, d, fmt.Sprintf("bench-latency-%d", i))
		if err != nil {
			return fmt.Errorf("latency of %s: %w", d.name(), err)
		}
		slices.Sort(took)
		fmt.Fprintf(t, "%s\t", d.name())
		for _, q := range quantiles {
			ms := float64(took[int(q.at*float64(len(took)-1))]) / float64(time.Millisecond)
			fmt.Fprintf(t, "%.1f\t", ms)
			rows = append(rows, []string{"latency " + d.name(), weir.name, q.name, strconv.FormatFloat(ms, 'f', 1, 64)})
		}
		fmt.Fprintf(t, "%d\t\n", len(took))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return writeCSV(b.out, about, rows)
}

// latencyOf runs a pass-through job under a constant load and returns how long each record took.
func (b *bench) latencyOf(ctx context.Context, d delivery, topic string) (took []time.Duration, err error) {
	in, out := topic+"-in", topic+"-out"
	for _, name := range []string{in, out} {
		if err := b.broker.CreateTopic(ctx, name, partitions, nil); err != nil {
			return nil, err
		}
	}
	of := *b
	of.interval = d.interval
	_, stop, err := startWeir(ctx, &of, workload{name: "passthrough", guarantee: d.guarantee}, in, out, 1, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := stop(); err == nil {
			err = stopped
		}
	}()
	start := time.Now()
	offered := int((latencyWarm + b.span).Seconds() * latencyRate)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.offer(ctx, in, start, offered) })
	group.Go(func() error {
		took, err = b.arrivals(ctx, out, start, offered)
		return err
	})
	return took, group.Wait()
}

// offer writes records, each of which holds the time after the start at which it was due.
func (b *bench) offer(ctx context.Context, topic string, start time.Time, records int) error {
	client, err := b.broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic), kgo.ProducerLinger(time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	p := newProducer(client, partitions)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for p.n < records {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-p.failed:
			return err
		case <-tick.C:
		}
		for p.n < records {
			due := time.Duration(p.n) * time.Second / latencyRate
			if due > time.Since(start) {
				break
			}
			v := make([]byte, work.Size)
			work.Fill(v, uint64(p.n), uint64(start.Add(due).UnixMilli()), uint64(due), 1)
			p.put(ctx, v, uint64(start.Add(due).UnixMilli()))
		}
	}
	return client.Flush(ctx)
}

// arrivals reads what is committed until there is as much as was offered, and returns how long each record took that was due after the
// time to get warm.
func (b *bench) arrivals(ctx context.Context, topic string, start time.Time, records int) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, latencyWarm+b.span+latencyGrace)
	defer cancel()
	client, err := b.broker.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	took := make([]time.Duration, 0, records)
	for n := 0; n < records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("after %d of %d records: %w", n, records, err)
		}
		at := time.Since(start)
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			if due := time.Duration(work.Sequence(r.Value)); due >= latencyWarm {
				took = append(took, at-due)
			}
		})
	}
	return took, nil
}
