package main

import (
	"context"
	"fmt"
	"log"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/bench/internal/work"
)

const every = work.Every

// each serves one partition of a workload that keeps nothing.
func each(ctx context.Context, c config, partition int32) error {
	p, err := newPipe(ctx, c, fmt.Sprint(partition), partition)
	if err != nil {
		return err
	}
	defer p.client.Close()
	if c.workload == "json-projection" {
		return p.run(ctx, c.interval, func(r *kgo.Record) error {
			v, err := work.ProjectJSON(r.Value)
			if err != nil {
				return err
			}
			r.Recycle()
			return p.put(ctx, v)
		})
	}
	// What was fetched is produced as it is: the record goes back to its pool when it is written.
	written := func(r *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err)
		}
		r.Recycle()
	}
	return p.run(ctx, c.interval, func(r *kgo.Record) error {
		if !work.Kept(r.Value) {
			r.Recycle()
			return nil
		}
		if err := p.begin(); err != nil {
			return err
		}
		p.client.Produce(ctx, r, written)
		return nil
	})
}

func (c config) all() []int32 {
	var out []int32
	for p := range c.partitions {
		out = append(out, int32(p))
	}
	return out
}

// counts counts the records of each key, and puts out every count that is a multiple of every.
func counts(ctx context.Context, c config, every uint64) error {
	p, err := newPipe(ctx, c, "0", c.all()...)
	if err != nil {
		return err
	}
	defer p.client.Close()
	state := map[uint64]uint64{}
	if every == 1 {
		if err := restore(ctx, p, state); err != nil {
			return err
		}
	}
	var rows []byte
	return p.run(ctx, c.interval, func(r *kgo.Record) error {
		key, sequence := work.Key(r.Value), work.Sequence(r.Value)
		r.Recycle()
		n := state[key] + 1
		state[key] = n
		if n%every != 0 {
			return nil
		}
		rows = row(rows, key, n, sequence, 0)
		return p.put(ctx, rows[len(rows)-work.RowSize:])
	})
}

// row appends a row to a slab that is given up when it is full, so that its rows stay as they are.
func row(slab []byte, a, b, c, d uint64) []byte {
	if cap(slab)-len(slab) < work.RowSize {
		slab = make([]byte, 0, 1024*work.RowSize)
	}
	return work.Row(slab, a, b, c, d)
}

// restore reads the last count of each key from the committed output.
func restore(ctx context.Context, p *pipe, state map[uint64]uint64) error {
	ends, err := kadm.NewClient(p.client).ListCommittedOffsets(ctx, p.cfg.out)
	if err != nil {
		return err
	}
	left := 0
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left++
		}
	})
	if left == 0 {
		return nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(p.cfg.brokers...), kgo.ConsumeTopics(p.cfg.out), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	for left > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				key, n := work.Key(r.Value), work.Millis(r.Value)
				state[key] = max(state[key], n)
			}
			if end, ok := ends.Lookup(p.cfg.out, r.Partition); ok && r.Offset == end.Offset-1 {
				left--
			}
		})
	}
	return nil
}

type total struct{ count, sum uint64 }

// windowCount counts and adds up per key and window. A window ends when all partitions are past it.
func windowCount(ctx context.Context, c config) error {
	p, err := newPipe(ctx, c, "0", c.all()...)
	if err != nil {
		return err
	}
	defer p.client.Close()
	var (
		windows = map[uint64]map[uint64]*total{}
		at      = make([]uint64, c.partitions)           // the window of each partition's last record
		first   = make([]map[uint64]int64, c.partitions) // the offset of each window's first record
		rows    []byte
		totals  []total
	)
	for i := range first {
		first[i] = map[uint64]int64{}
	}
	return p.run(ctx, 0, func(r *kgo.Record) error {
		w, key := work.Millis(r.Value)/work.WindowMillis, work.Key(r.Value)
		keys := windows[w]
		if keys == nil {
			keys = make(map[uint64]*total, 1<<17)
			windows[w] = keys
		}
		t := keys[key]
		if t == nil {
			if len(totals) == 0 {
				totals = make([]total, slab)
			}
			t, totals = &totals[0], totals[1:]
			keys[key] = t
		}
		t.count++
		t.sum += work.Sequence(r.Value)
		partition, offset := r.Partition, r.Offset
		r.Recycle()
		if at[partition] == w {
			return nil
		}
		at[partition] = w
		first[partition][w] = offset
		low := at[0]
		for _, a := range at {
			low = min(low, a)
		}
		next := map[int32]int64{}
		for w, keys := range windows {
			if w >= low {
				continue
			}
			for key, t := range keys {
				rows = row(rows, key, w*work.WindowMillis, t.count, t.sum)
				if err := p.put(ctx, rows[len(rows)-work.RowSize:]); err != nil {
					return err
				}
			}
			delete(windows, w)
			for partition := range first {
				delete(first[partition], w)
				next[int32(partition)] = first[partition][low]
			}
		}
		return p.commit(ctx, next)
	})
}
