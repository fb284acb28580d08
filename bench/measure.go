package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/internal/javatest"
	"github.com/weir-stream/weir/internal/usage"
)

const (
	// warm is the part of the output after which measuring begins for compiled programs.
	warm = 0.2
	// patience bounds a run.
	patience = 10 * time.Minute
	lookEach = 20 * time.Millisecond
	// looks is how many of them pass, without any output, between looks at the processes.
	looks = 50
)

// sample is what was seen when output became visible.
type sample struct {
	visible int64
	cpu     time.Duration
	at      time.Time
}

// result is one run's figures.
type result struct {
	recordsPerCPUSecond, recordsPerSecond, peakMB float64
	// span is how long was measured, and before how long the program ran until then.
	span, before time.Duration
	// from is when measuring began.
	from time.Time
}

// measure runs a workload once. What counts is the time between the first commit after the engine's warm part of the output and the last
// one, so that neither the start nor the planning of a job is in it, while checkpoints and commits are.
func (b *bench) measure(ctx context.Context, e engine, w workload, in input, out string) (_ result, err error) {
	if err := b.broker.CreateTopic(ctx, out, partitions, kept); err != nil {
		return result{}, err
	}
	begun := time.Now()
	pids, stop, err := e.start(ctx, b, w, in.topic, out)
	if err != nil {
		return result{}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, b.logs(out))
		}
		err = errors.Join(err, stop(), b.broker.DeleteTopic(context.WithoutCancel(ctx), out))
	}()
	r, err := b.observe(ctx, []string{out}, in.records, in.want[w.name], w.stable, e.warm, sample{}, pids)
	r.before = r.from.Sub(begun)
	return r, err
}

// observe waits until topics hold the whole output that is wanted of so many records of input, and checks it. Measuring begins with the
// sample since, or else with the first commit after the warm part of the output.
func (b *bench) observe(ctx context.Context, topics []string, records int, want output, stable int, warm float64, since sample, pids func() ([]int, error)) (result, error) {
	first, last, err := b.watch(ctx, topics, want.records, warm, since, pids)
	if err != nil {
		return result{}, err
	}
	running, err := pids()
	if err != nil {
		return result{}, err
	}
	rss, err := usage.Peak(running...)
	if err != nil {
		return result{}, err
	}
	// Markers count in offsets, so that the last few records may still be under way.
	var got output
	for deadline := time.Now().Add(time.Minute); ; {
		if got, err = committed(ctx, b.broker, topics, stable); err != nil {
			return result{}, err
		}
		if got.records >= want.records || time.Now().After(deadline) {
			break
		}
		time.Sleep(time.Second)
	}
	if got != want {
		return result{}, fmt.Errorf("%d results with checksum %x are committed, not %d with %x", got.records, got.checksum, want.records, want.checksum)
	}
	part := float64(records) * float64(last.visible-first.visible) / float64(want.records)
	return result{
		recordsPerCPUSecond: part / (last.cpu - first.cpu).Seconds(),
		recordsPerSecond:    part / last.at.Sub(first.at).Seconds(),
		peakMB:              float64(rss) / 1e6,
		span:                last.at.Sub(first.at),
		from:                first.at,
	}, nil
}

// sampleOf looks at what processes have used so far.
func sampleOf(visible int64, pids func() ([]int, error)) (sample, error) {
	running, err := pids()
	if err != nil {
		return sample{}, err
	}
	used, err := usage.CPU(running...)
	return sample{visible, used, time.Now()}, err
}

// logs returns the ends of a run's logs.
func (b *bench) logs(out string) string {
	var all strings.Builder
	paths, _ := filepath.Glob(filepath.Join(b.dir, out, "*.log"))
	for _, path := range paths {
		if text, err := os.ReadFile(path); err == nil {
			fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(path), javatest.Tail(text, 30))
		}
	}
	return all.String()
}

// watch waits until the whole output is visible.
func (b *bench) watch(ctx context.Context, topics []string, want int64, warm float64, since sample, pids func() ([]int, error)) (first, last sample, err error) {
	first, last = since, since
	client, err := b.broker.Client()
	if err != nil {
		return first, last, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	deadline := time.Now().Add(patience)
	for look := 0; ; look++ {
		offsets, err := admin.ListCommittedOffsets(ctx, topics...)
		if err == nil {
			err = offsets.Error()
		}
		if err != nil {
			return first, last, err
		}
		var visible int64
		offsets.Each(func(o kadm.ListedOffset) { visible += o.Offset })
		if visible > last.visible {
			if last, err = sampleOf(visible, pids); err != nil {
				return first, last, err
			}
			if first.at.IsZero() && float64(visible) >= warm*float64(want) {
				first = last
			}
		} else if look%looks == 0 {
			if _, err := pids(); err != nil {
				return first, last, err
			}
		}
		switch {
		case visible >= want && last.visible == first.visible:
			return first, last, errors.New("the whole output came with one commit: more records are needed")
		case visible >= want:
			return first, last, nil
		case time.Now().After(deadline):
			return first, last, fmt.Errorf("%d of %d results are visible after %s", visible, want, patience)
		}
		select {
		case <-ctx.Done():
			return first, last, ctx.Err()
		case <-time.After(lookEach):
		}
	}
}
