package orders

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/committed"
)

// Topics are the input and output of one run.
type Topics struct {
	Brokers     []string
	Orders      string
	Totals      string
	Replication int16
	// Quiet, when not nil, delivers functions that Produce calls while no order is on its way. The death of a broker is one of them: a
	// broker that comes back takes the repetition of an unanswered request for a gap, and the client then writes the orders again under
	// another epoch, so that the input has them twice.
	Quiet chan func()
}

// Create makes both topics; they must not exist.
func (t Topics) Create(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(t.Brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	responses, err := kadm.NewClient(client).CreateTopics(ctx, Partitions, t.Replication, nil, t.Orders, t.Totals)
	if err != nil {
		return fmt.Errorf("create topics on %v: %w", t.Brokers, err)
	}
	return responses.Error()
}

// Produce writes the orders of s at its rate, then one flush order to each partition. Orders acknowledged by the broker are counted in
// produced.
func (t Topics) Produce(ctx context.Context, s Stream, produced *atomic.Uint64) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(t.Brokers...),
		kgo.DefaultProduceTopic(t.Orders),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer client.Close()

	var failed atomic.Pointer[error]
	send := func(o Order, partition int32, counted bool) error {
		value, err := json.Marshal(o)
		if err != nil {
			return err
		}
		client.Produce(ctx, &kgo.Record{Partition: partition, Key: []byte(o.User), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			} else if counted {
				produced.Add(1)
			}
		})
		return nil
	}

	const tick = 10 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	begin := time.Now()
	for n := uint64(0); n < s.Orders; {
		due := min(s.Orders, uint64(time.Since(begin).Seconds()*float64(s.Rate)))
		for ; n < due; n++ {
			if err := send(s.Order(n), s.Partition(n), true); err != nil {
				return err
			}
		}
		if err := failed.Load(); err != nil {
			return fmt.Errorf("produce: %w", *err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case do := <-t.Quiet:
			if err := client.Flush(ctx); err != nil {
				return fmt.Errorf("produce: %w", err)
			}
			do()
		case <-ticker.C:
		}
	}
	// The flush orders come after all others in each partition, as a partition keeps the order of its producer.
	for p := range int32(Partitions) {
		if err := send(s.Flush(), p, false); err != nil {
			return err
		}
	}
	if err := client.Flush(ctx); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	if err := failed.Load(); err != nil {
		return fmt.Errorf("produce: %w", *err)
	}
	return nil
}

// Read passes every committed total to add until ctx ends.
func (t Topics) Read(ctx context.Context, add func(Total)) error {
	return committed.Follow(ctx, t.Brokers, []string{t.Totals}, func(r *kgo.Record) error {
		var total Total
		if err := json.Unmarshal(r.Value, &total); err != nil {
			return err
		}
		add(total)
		return nil
	})
}
