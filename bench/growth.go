package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-stream/weir/bench/internal/curve"
	"github.com/weir-stream/weir/bench/internal/work"
)

// point is one run of a curve.
type point struct {
	series string
	x      float64
	// job is the workload with its further arguments, every which of a key's counts it puts out: 0 for all records as they come.
	job   []string
	every uint64
	in    growthInput
	// taskManagers share the slots evenly; a job has so many subtasks.
	taskManagers, slots, parallelism int
	// jobs each read the whole input; with more than one, or late, it is written when they run.
	jobs int
	late bool
	// interval is that of checkpoints where it is not the usual one.
	interval time.Duration
	// loaded has measuring begin when each key has come once.
	loaded bool
}

// growthInput is what a topic holds. Points with the same one share it.
type growthInput struct {
	partitions, records, size int
	// keys of the records; they come one after the other first, at random then. 0 for records without.
	keys int
}

// grow measures each curve, writes what came out to a CSV file, and draws a picture of each. Of curves that were not chosen it keeps the
// figures that the file has.
func (b *bench) grow(ctx context.Context, about []string) error {
	chosen := func(name string) bool { return len(b.only) == 0 || slices.Contains(b.only, name) }
	var all []curve.Row
	if b.out != "" {
		rows, err := curve.Read(b.out)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		all = slices.DeleteFunc(rows, func(r curve.Row) bool { return chosen(r.Curve) })
	}
	for _, c := range b.curves() {
		if !chosen(c.name) {
			continue
		}
		rows, err := b.measureCurve(ctx, c)
		if err != nil {
			return fmt.Errorf("curve %s: %w", c.name, err)
		}
		all = append(all, rows...)
		if b.out != "" {
			if err := curve.Write(b.out, about, all); err != nil {
				return err
			}
		}
	}
	return b.draw(all)
}

// draw draws the pictures of all curves of which there are figures.
func (b *bench) draw(rows []curve.Row) error {
	if b.pictures == "" {
		return nil
	}
	if err := os.MkdirAll(b.pictures, 0o755); err != nil {
		return err
	}
	for _, c := range b.curves() {
		c.picture.Rows = nil
		for _, r := range rows {
			if r.Curve == c.name {
				c.picture.Rows = append(c.picture.Rows, r)
			}
		}
		if len(c.picture.Rows) == 0 {
			continue
		}
		if err := c.picture.Save(filepath.Join(b.pictures, c.name+".svg")); err != nil {
			return fmt.Errorf("picture of %s: %w", c.name, err)
		}
	}
	return nil
}

func (b *bench) measureCurve(ctx context.Context, c growthCurve) (rows []curve.Row, err error) {
	inputs := map[growthInput]input{}
	defer func() {
		for _, in := range inputs {
			err = errors.Join(err, b.broker.DeleteTopic(context.WithoutCancel(ctx), in.topic))
		}
	}()
	for n, p := range c.points {
		in, ok := inputs[p.in]
		if !ok {
			topic := fmt.Sprintf("growth-%s-in-%d", c.name, len(inputs))
			if p.late {
				err = b.broker.CreateTopic(ctx, topic, p.in.partitions, kept)
				in = input{topic: topic}
			} else {
				in, err = fillTopic(ctx, b.broker, topic, p.in.partitions, p.in.write)
			}
			if err != nil {
				return nil, err
			}
			inputs[p.in] = in
		}
		r, err := b.measurePoint(ctx, p, in, fmt.Sprintf("growth-%s-%d", c.name, n))
		if err != nil {
			return nil, fmt.Errorf("%s at %v: %w", p.series, p.x, err)
		}
		add := func(metric string, v float64) {
			rows = append(rows, curve.Row{Curve: c.name, Series: p.series, X: p.x, Metric: metric, Value: v})
		}
		for _, m := range metrics {
			add(m.name, m.of(r))
		}
		add(curve.NanosecondsPerRecord, 1e9/r.recordsPerCPUSecond)
		add(curve.BytesPerCPUSecond, r.recordsPerCPUSecond*float64(p.in.size))
		add(curve.BytesPerSecond, r.recordsPerSecond*float64(p.in.size))
		fmt.Printf("%-14s %-16s %9s: %8.0f records per CPU-s, %8.0f per s, %5.0f MB, over %.1f s\n",
			c.name, p.series, strconv.FormatFloat(p.x, 'f', -1, 64), r.recordsPerCPUSecond, r.recordsPerSecond, r.peakMB, r.span.Seconds())
	}
	return rows, nil
}

// submitters is how many jobs are submitted at a time.
const submitters = 4

// measurePoint runs the jobs of a point once and checks their outputs.
func (b *bench) measurePoint(ctx context.Context, p point, in input, name string) (_ result, err error) {
	cluster, stop, err := b.startCluster(ctx, name, p.taskManagers, p.slots/p.taskManagers, nil)
	if err != nil {
		return result{}, err
	}
	var outs []string
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, b.logs(name))
		}
		err = errors.Join(err, stop())
		for _, out := range outs {
			err = errors.Join(err, b.broker.DeleteTopic(context.WithoutCancel(ctx), out))
		}
	}()
	group, submitting := errgroup.WithContext(ctx)
	group.SetLimit(submitters)
	for n := range p.jobs {
		out := fmt.Sprintf("%s-%d", name, n)
		if err := b.broker.CreateTopic(ctx, out, p.in.partitions, kept); err != nil {
			return result{}, errors.Join(err, group.Wait())
		}
		outs = append(outs, out)
		group.Go(func() error {
			return b.submit(submitting, cluster, out, p.parallelism, append(p.job, "--brokers", b.broker.Addr(), "--in", in.topic, "--out", out,
				"--interval", cmp.Or(p.interval, b.interval).String())...)
		})
	}
	if err := group.Wait(); err != nil {
		return result{}, err
	}
	pids := pidsOf(cluster)
	// Without a state that has to grow first, all that the jobs use from their start on counts, and none of it is on records that
	// were read ahead before.
	var since sample
	if !p.loaded {
		if since, err = sampleOf(0, pids); err != nil {
			return result{}, err
		}
	}
	if p.late {
		if in, err = write(ctx, b.broker, in.topic, p.in.partitions, p.in.write); err != nil {
			return result{}, err
		}
	}
	want, stable := in.want["copy"], 0
	if p.every > 0 {
		want, stable = in.want[strconv.FormatUint(p.every, 10)], 16
	}
	want.records *= int64(p.jobs)
	want.checksum *= uint64(p.jobs)
	return b.observe(ctx, outs, p.in.records*p.jobs, want, stable, float64(p.in.keys)/float64(p.in.records), since, pids)
}

// write writes the records: a number and filler, or with keys what package work reads.
func (in growthInput) write(ctx context.Context, p *producer) (input, error) {
	var plain, each, tenth output
	var counts []uint32
	if in.keys > 0 {
		counts = make([]uint32, in.keys)
	}
	row := make([]byte, 0, work.RowSize)
	random := uint64(1)
	for n := range in.records {
		v := make([]byte, in.size)
		millis := uint64(firstDay + n/perMilli)
		if in.keys == 0 {
			for i := range v {
				v[i] = byte(n >> (8 * (i % 3)))
			}
			plain.add(v)
		} else {
			key := uint64(n)
			if n >= in.keys {
				random = random*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
				key = (random >> 32) % uint64(in.keys)
			}
			work.Fill(v, key, millis, uint64(n), 1)
			counts[key]++
			counted := work.Row(row[:0], key, uint64(counts[key]), 0, 0)[:16]
			each.add(counted)
			if counts[key]%work.Every == 0 {
				tenth.add(counted)
			}
		}
		p.put(ctx, v, millis)
		if err := ctx.Err(); err != nil {
			return input{}, err
		}
	}
	return input{want: map[string]output{"copy": plain, "1": each, strconv.Itoa(work.Every): tenth}}, nil
}

// growthInterval is that of checkpoints: runs are short, and need some commits each.
const growthInterval = 500 * time.Millisecond
