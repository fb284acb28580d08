package harness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/orders"
)

// OrderRun feeds orders to topics of its own and keeps the account of the totals that a read_committed reader sees.
type OrderRun struct {
	t        testing.TB
	Topics   orders.Topics
	Input    orders.Stream
	Produced atomic.Uint64
	finished atomic.Bool

	mu     sync.Mutex
	ledger *orders.Ledger
}

// StartOrders creates the topics and produces n orders, past any proxy before the broker: it is the job that is tried, at the given
// rate per second in the background, until the test ends.
func (c *Cluster) StartOrders(n, rate uint64) *OrderRun {
	c.t.Helper()
	name := fmt.Sprintf("%s-%d", strings.Map(topicRune, c.t.Name()), time.Now().UnixNano())
	r := &OrderRun{
		t: c.t,
		Topics: orders.Topics{
			Brokers: []string{c.Broker.Direct()}, Orders: name + "-orders", Totals: name + "-totals", Replication: 1, Quiet: make(chan func()),
		},
		Input: orders.Stream{Orders: n, Rate: rate, Base: time.Now().Truncate(orders.Window).UnixMilli()},
	}
	c.t.Cleanup(func() {
		if c.t.Failed() {
			open, err := c.Broker.OpenTransactions(context.Background(), r.Topics.Totals)
			c.t.Logf("open transactions: %v %v", open, err)
			ids, err := c.Broker.TransactionalIDs(context.Background(), "")
			c.t.Logf("transactional ids: %v %v", ids, err)
			c.t.Logf("input: %s", r.input(c.Broker))
		}
	})
	r.ledger = orders.NewLedger(r.Input.Expected())
	require.NoError(c.t, r.Topics.Create(c.t.Context()))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Topics.Produce(ctx, r.Input, &r.Produced); err != nil && ctx.Err() == nil {
			c.t.Errorf("produce: %v", err)
		}
		r.finished.Store(true)
		for {
			select {
			case do := <-r.Topics.Quiet:
				do()
			case <-ctx.Done():
				return
			}
		}
	})
	wg.Go(func() {
		if err := r.Topics.Read(ctx, r.take); err != nil && ctx.Err() == nil {
			c.t.Errorf("read: %v", err)
		}
	})
	c.t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

// WhileQuiet calls do while no order is on its way to the broker, and returns when it has.
func (r *OrderRun) WhileQuiet(do func()) {
	done := make(chan struct{})
	r.Topics.Quiet <- func() {
		defer close(done)
		do()
	}
	<-done
}

func topicRune(r rune) rune {
	if r == '/' {
		return '.'
	}
	return r
}

func (r *OrderRun) take(t orders.Total) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.Add(t, time.Now())
}

// input says how often the orders are in the input topic: a broker that dies may have taken one twice, or forgotten it, which no job can
// mend.
func (r *OrderRun) input(broker *kafkatest.Broker) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records, err := broker.ReadCommitted(ctx, r.Topics.Orders)
	if err != nil {
		return err.Error()
	}
	seen := make(map[uint64]int)
	twice, example := 0, uint64(0)
	for _, rec := range records {
		o, err := orders.DecodeOrder(rec.Value)
		if err != nil {
			return err.Error()
		}
		if seen[o.Seq]++; seen[o.Seq] == 2 && o.Seq < r.Input.Orders { // the flush orders share a number
			twice, example = twice+1, o.Seq
		}
	}
	missing := 0
	for n := range r.Input.Orders {
		if seen[n] == 0 {
			missing++
		}
	}
	return fmt.Sprintf("%d records, %d orders more than once (such as %d), %d orders missing", len(records), twice, example, missing)
}

// Args are the job's arguments for this run.
func (r *OrderRun) Args(more ...string) []string {
	return append([]string{"--in", r.Topics.Orders, "--out", r.Topics.Totals}, more...)
}

// Committed returns how many orders are in the results seen, and when the last one was read.
func (r *OrderRun) Committed() (uint64, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Committed, r.ledger.LastOutput
}

// Problem returns what is wrong with the results seen so far.
func (r *OrderRun) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ledger.Duplicated > 0 || len(r.ledger.Wrong()) > 0 {
		return fmt.Errorf("%s: %d results are duplicated, wrong are %v", r.Topics.Totals, r.ledger.Duplicated, r.ledger.Wrong())
	}
	return nil
}

// Finished reports whether every order is produced.
func (r *OrderRun) Finished() bool { return r.finished.Load() }

// AwaitOutput waits for a committed result read after since.
func (r *OrderRun) AwaitOutput(since time.Time, timeout time.Duration) {
	r.t.Helper()
	Eventually(r.t, timeout, "committed output", func() error {
		if _, last := r.Committed(); !last.After(since) {
			return fmt.Errorf("the last one came %s ago, %d orders produced", time.Since(last).Round(time.Millisecond), r.Produced.Load())
		}
		return nil
	})
}

// RequireExactlyOnce waits until every order is produced and every result is in, watches a little longer for duplicates, and checks the
// account.
func (r *OrderRun) RequireExactlyOnce(timeout time.Duration) {
	r.t.Helper()
	Eventually(r.t, timeout, "every result", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.finished.Load() || !r.ledger.Complete() {
			return fmt.Errorf("%d orders produced, %d committed, %d of %d results missing, such as %v",
				r.Produced.Load(), r.ledger.Committed, r.ledger.Missing(), r.ledger.Results(), r.ledger.MissingPanes(3))
		}
		return nil
	})
	time.Sleep(3 * time.Second) // duplicates, if any, would be committed with the next checkpoints
	r.mu.Lock()
	defer r.mu.Unlock()
	require.Zero(r.t, r.ledger.Missing(), "missing results")
	require.Zero(r.t, r.ledger.Duplicated, "duplicated results")
	require.Empty(r.t, r.ledger.Wrong(), "wrong results")
}
