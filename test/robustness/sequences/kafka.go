package sequences

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/committed"
)

// tick is how often records are written; pace is how long the load stays the same.
const (
	tick = 10 * time.Millisecond
	pace = 1500 * time.Millisecond
)

// Load says what Produce writes and when.
type Load struct {
	Brokers []string
	Topics  []string // by input
	Rate    float64  // records per second, on average
	Seed    uint64
	// Quiet delivers functions that Produce calls while no record is on its way: an idempotent producer may write records twice when
	// its broker dies.
	Quiet <-chan func()
	// End ends the input when it is closed.
	End <-chan struct{}
}

// Produce writes records at a changing rate, with silence now and then, until the end of the load.
func Produce(ctx context.Context, l Load, g *Generator) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(l.Brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var failed atomic.Pointer[error]
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			failed.CompareAndSwap(nil, &err)
		}
	}
	flush := func() error {
		if err := client.Flush(ctx); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		if err := failed.Load(); err != nil {
			return fmt.Errorf("produce: %w", *err)
		}
		return nil
	}
	rnd := rand.New(rand.NewPCG(l.Seed, 2))
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	owed, factor, changeAt := 0.0, 1.0, time.Now()
	for {
		if now := time.Now(); now.After(changeAt) {
			factor, changeAt = []float64{0, 0.01, 0.5, 1, 1, 1.5, 3}[rnd.IntN(7)], now.Add(pace)
		}
		for owed += l.Rate * factor * tick.Seconds(); owed >= 1; owed-- {
			r := g.Next()
			client.Produce(ctx, &kgo.Record{Topic: l.Topics[r.Input], Partition: r.Partition(), Key: []byte(r.Key), Value: r.Encode()}, done)
		}
		if err := failed.Load(); err != nil {
			return fmt.Errorf("produce: %w", *err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.End:
			return flush()
		case do := <-l.Quiet:
			err := flush()
			do()
			if err != nil {
				return err
			}
		case <-ticker.C:
		}
	}
}

// Read passes every committed result to add, each partition in order, until ctx ends.
func Read(ctx context.Context, brokers []string, topic string, add func(partition int32, offset int64, r Result)) error {
	return committed.Follow(ctx, brokers, []string{topic}, func(rec *kgo.Record) error {
		r, err := DecodeResult(rec.Value)
		if err == nil {
			add(rec.Partition, rec.Offset, r)
		}
		return err
	})
}
