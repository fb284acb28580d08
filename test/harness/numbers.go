package harness

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/committed"
	"github.com/weir-stream/weir/internal/kafkatest"
)

// What a NumberRun produces: records of every burst, a burst every so often, each with bytes of state that does not compress.
const (
	numberPartitions = 2
	numberBurst      = 4
	numberEvery      = 20 * time.Millisecond
	numberKeys       = 40
	numberBytes      = 2 << 10
	numberStep       = int64(numberEvery/time.Millisecond) / numberBurst // of event time
	numbersPerWindow = 100
	// NumberWindow is the length of the windows that the job has to use.
	NumberWindow = time.Duration(numbersPerWindow*numberStep) * time.Millisecond
)

// NumberRun feeds the numbers from 0 on to a job of shape crash at a steady rate, reads its output as it is committed, and keeps account
// of it: each number once and in the order of its key, and the right sum of each key and window once.
type NumberRun struct {
	In, Out, Sums string
	base          int64 // event time of number 0

	mu       sync.Mutex
	produced int
	copies   []uint8        // by number, how often it is in the output
	whole    int            // all numbers below are in the output
	last     map[string]int // newest number by key
	windows  []int          // by window, how many of its keys are in the output
	closed   int            // all windows below are in the output
	seen     map[pane]bool
	phases   []phase
	wrong    []string
}

type pane struct {
	window, key int
}

// phase is a part of the run, for people.
type phase struct {
	name string
	from int
}

// StartNumbers creates the topics, and produces and reads until the test ends.
func StartNumbers(t testing.TB, broker *kafkatest.Broker) *NumberRun {
	t.Helper()
	r := &NumberRun{
		In: broker.Topic(t, numberPartitions, nil), Out: broker.Topic(t, numberPartitions, nil), Sums: broker.Topic(t, numberPartitions, nil),
		base: time.Now().Truncate(NumberWindow).UnixMilli(), last: make(map[string]int), seen: make(map[pane]bool),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.produce(ctx, broker); err != nil && ctx.Err() == nil {
			t.Errorf("produce: %v", err)
		}
	})
	wg.Go(func() {
		if err := r.read(ctx, broker); err != nil && ctx.Err() == nil {
			t.Errorf("read: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

// Args are the job's arguments for this run.
func (r *NumberRun) Args(more ...string) []string {
	return append([]string{"--shape", "crash", "--in", r.In, "--out", r.Out, "--out2", r.Sums, "--window", NumberWindow.String()}, more...)
}

func (r *NumberRun) produce(ctx context.Context, broker *kafkatest.Broker) error {
	cl, err := broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer cl.Close()
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	tick := time.NewTicker(numberEvery)
	defer tick.Stop()
	for n := 0; ; n += numberBurst {
		var records []*kgo.Record
		for i := n; i < n+numberBurst; i++ {
			at := rand.IntN(len(noise) - numberBytes)
			value := append(binary.BigEndian.AppendUint64(nil, uint64(i)), noise[at:at+numberBytes]...)
			records = append(records, &kgo.Record{
				Topic: r.In, Partition: int32(i % numberPartitions), Key: []byte(strconv.Itoa(i % numberKeys)), Value: value,
				Timestamp: time.UnixMilli(r.base + int64(i)*numberStep),
			})
		}
		if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		r.mu.Lock()
		r.produced = n + numberBurst
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *NumberRun) read(ctx context.Context, broker *kafkatest.Broker) error {
	return committed.Follow(ctx, []string{broker.Direct()}, []string{r.Out, r.Sums}, func(rec *kgo.Record) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if rec.Topic == r.Out {
			r.copy(rec)
		} else {
			r.sum(rec)
		}
		return nil
	})
}

func (r *NumberRun) copy(rec *kgo.Record) {
	n := int(binary.BigEndian.Uint64(rec.Value))
	for len(r.copies) <= n {
		r.copies = append(r.copies, 0)
	}
	r.copies[n]++
	key := string(rec.Key)
	switch last, known := r.last[key]; {
	case r.copies[n] > 1:
		r.fault("number %d (%s) is in the output %d times", n, r.during(n), r.copies[n])
	case known && n < last:
		r.fault("number %d (%s) comes after %d with the same key", n, r.during(n), last)
	default:
		r.last[key] = n
	}
	for r.whole < len(r.copies) && r.copies[r.whole] > 0 {
		r.whole++
	}
}

func (r *NumberRun) sum(rec *kgo.Record) {
	w := int(int64(binary.BigEndian.Uint64(rec.Value))-r.base) / int(NumberWindow/time.Millisecond)
	count, sum := binary.BigEndian.Uint64(rec.Value[8:]), binary.BigEndian.Uint64(rec.Value[16:])
	key, err := strconv.Atoi(string(rec.Key))
	if err != nil || w < 0 {
		r.fault("unexpected result of key %q and window %d", rec.Key, w)
		return
	}
	var wantCount, wantSum uint64
	for n := w * numbersPerWindow; n < (w+1)*numbersPerWindow; n++ {
		if n%numberKeys == key {
			wantCount, wantSum = wantCount+1, wantSum+uint64(n)
		}
	}
	at := r.during(w * numbersPerWindow)
	if r.seen[pane{w, key}] {
		r.fault("window %d of key %d (%s) is in the output twice", w, key, at)
		return
	}
	r.seen[pane{w, key}] = true
	if count != wantCount || sum != wantSum {
		r.fault("window %d of key %d (%s) has %d records with the sum %d, not %d with %d", w, key, at, count, sum, wantCount, wantSum)
	}
	for len(r.windows) <= w {
		r.windows = append(r.windows, 0)
	}
	r.windows[w]++
	for r.closed < len(r.windows) && r.windows[r.closed] == numberKeys {
		r.closed++
	}
}

func (r *NumberRun) fault(format string, args ...any) {
	const most = 20
	if len(r.wrong) < most {
		name := "before the first part"
		if len(r.phases) > 0 {
			name = r.phases[len(r.phases)-1].name
		}
		r.wrong = append(r.wrong, fmt.Sprintf(format, args...)+", seen during "+name)
	}
}

// during names the part of the run in which a number was produced.
func (r *NumberRun) during(n int) string {
	name := "produced before the first part"
	for _, p := range r.phases {
		if p.from <= n {
			name = "produced during " + p.name
		}
	}
	return name
}

// Begin names the part of the run that begins now.
func (r *NumberRun) Begin(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phases = append(r.phases, phase{name, r.produced})
}

// Require waits until all that is produced up to now is in the output, and every window that it completes, and checks that nothing is
// there twice, wrong or out of order. t is the part of the test that then fails.
func (r *NumberRun) Require(t testing.TB, timeout time.Duration) {
	t.Helper()
	r.mu.Lock()
	mark := r.produced
	r.mu.Unlock()
	// A window closes when both partitions have got past its end.
	windows := max(0, mark-numberPartitions) / numbersPerWindow
	deadline := time.Now().Add(timeout)
	for {
		r.mu.Lock()
		whole, closed, wrong := r.whole, r.closed, r.wrong
		r.wrong = nil
		missing := r.during(whole)
		r.mu.Unlock()
		require.Empty(t, wrong)
		if whole >= mark && closed >= windows {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for the output of the numbers below %d and of %d windows: all numbers below %d (that is %s) and all windows below %d are there",
				timeout, mark, windows, whole, missing, closed)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
