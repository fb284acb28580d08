package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// The state of the job in TestTaskManagerKilledWithASpareSlot.
const (
	stateKeys  = 100_000
	stateValue = 1000 // bytes for each key
)

// Default settings but for the number of slots: three TaskManagers of one slot, a job of two, so that one is spare. The time is taken
// from the kill to the next record that a read_committed reader gets.
func TestTaskManagerKilledWithASpareSlot(t *testing.T) {
	const kills = 10
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 3, Slots: 1})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "2"}, "--shape", "hoard", "--in", in, "--out", out)
	fillState(c, in)
	reader := readCommitted(t, c, out)
	ticks := tick(t, c, in)
	harness.Eventually(t, 60*time.Second, "the state to be in a checkpoint", func() error {
		if n := totalBytes(t, c, id); n < stateKeys*stateValue*9/10 {
			return fmt.Errorf("the last checkpoint has %d bytes", n)
		}
		return nil
	})
	size := totalBytes(t, c, id)

	var took []time.Duration
	stall := harness.WatchStalls(t)
	for range kills {
		reader.next(t, time.Now())
		victim, _ := busyTaskManager(t, c)
		at := time.Now()
		require.NoError(t, victim.Kill())
		took = append(took, reader.next(t, at).Sub(at))
		require.NoError(t, victim.Start())
		c.WaitWhole(30 * time.Second)
		c.WaitState(id, "RUNNING", 30*time.Second)
	}
	ticks.stop()
	reader.requireEach(t, ticks)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
	slices.Sort(took)
	median := took[kills/2]
	t.Logf("committed output again after %s (median of %d kills, %s to %s), %d MB of state, longest stall of the machine %s", median.Round(time.Millisecond), kills,
		took[0].Round(time.Millisecond), took[kills-1].Round(time.Millisecond), size>>20, stall())
	require.Less(t, median, 3*time.Second+stall())
}

// How soon the leader knows, by its own log.
func TestLossOfATaskManagerIsNoticed(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})
	leader := c.JobManagers()[0]
	noticed := func(tm *localcluster.Process, at time.Time) time.Duration {
		var seen time.Time
		harness.Eventually(t, 15*time.Second, "the loss to be noticed", func() error {
			for _, line := range strings.Split(leader.LogTail(50), "\n") {
				if strings.Contains(line, "taskmanager is lost") && strings.Contains(line, "host="+tm.ID) && logTime(t, line).After(at) {
					seen = logTime(t, line)
					return nil
				}
			}
			return fmt.Errorf("it is not")
		})
		return seen.Sub(at)
	}
	dies, stands, stall := c.TaskManagers()[0], c.TaskManagers()[1], harness.WatchStalls(t)
	at := time.Now().Truncate(time.Millisecond) // the precision of the log
	require.NoError(t, dies.Kill())
	death := noticed(dies, at)
	at = time.Now().Truncate(time.Millisecond)
	freeze(t, stands.PID())
	silence := noticed(stands, at)
	t.Logf("death noticed after %s, silence after %s, longest stall of the machine %s", death, silence, stall())
	require.LessOrEqual(t, death, time.Second+stall())
	require.Less(t, silence, 5*time.Second+stall())
}

// fillState writes one record of each key, with a value that does not compress.
func fillState(c *harness.Cluster, in string) {
	random := rand.NewChaCha8([32]byte{})
	batch := make([]*kgo.Record, 0, 5000)
	for n := range stateKeys {
		value := make([]byte, stateValue)
		_, _ = random.Read(value)
		batch = append(batch, &kgo.Record{Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%d", n), Value: value})
		if len(batch) == cap(batch) || n == stateKeys-1 {
			c.Produce(batch...)
			batch = batch[:0]
		}
	}
}

func totalBytes(t *testing.T, c *harness.Cluster, id string) int {
	t.Helper()
	var list struct {
		Checkpoints []struct{ State, TotalBytes string } `json:"checkpoints"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("checkpoints", id, "-o", "json")), &list))
	for _, cp := range list.Checkpoints {
		if cp.State == "completed" {
			n, err := strconv.Atoi(orZero(cp.TotalBytes))
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

// ticker writes numbered records, which the job passes on.
type ticker struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	sent   int // valid after stop
}

func tick(t *testing.T, c *harness.Cluster, in string) *ticker {
	t.Helper()
	client, err := c.Broker.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	k := &ticker{cancel: cancel}
	k.wg.Go(func() {
		defer client.Close()
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				if err := client.Flush(context.Background()); err != nil {
					t.Errorf("produce: %v", err)
				}
				return
			case <-every.C:
				n := k.sent
				k.sent++
				client.Produce(context.Background(), &kgo.Record{
					Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%d", n%stateKeys), Value: fmt.Appendf(nil, "tick %d", n),
				}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
			}
		}
	})
	t.Cleanup(k.stop)
	return k
}

func (k *ticker) stop() {
	k.cancel()
	k.wg.Wait()
}

// committedReader reads what is committed in a topic as it comes.
type committedReader struct {
	mu   sync.Mutex
	seen map[string]int
	last time.Time
}

func readCommitted(t *testing.T, c *harness.Cluster, topic string) *committedReader {
	t.Helper()
	client, err := c.Broker.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(50*time.Millisecond))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &committedReader{seen: map[string]int{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer client.Close()
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			r.mu.Lock()
			fetches.EachRecord(func(rec *kgo.Record) {
				if bytes.HasPrefix(rec.Value, []byte("tick ")) {
					r.seen[string(rec.Value)]++
					r.last = time.Now()
				}
			})
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return r
}

// next waits for a record that is read after since, and returns when.
func (r *committedReader) next(t *testing.T, since time.Time) time.Time {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		r.mu.Lock()
		last := r.last
		r.mu.Unlock()
		if last.After(since) {
			return last
		}
		require.True(t, time.Now().Before(deadline), "no committed output")
		time.Sleep(5 * time.Millisecond)
	}
}

// requireEach waits for all that was sent, and checks that each was seen once.
func (r *committedReader) requireEach(t *testing.T, k *ticker) {
	t.Helper()
	harness.Eventually(t, 30*time.Second, "every record", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.seen) < k.sent {
			return fmt.Errorf("%d of %d are there", len(r.seen), k.sent)
		}
		return nil
	})
	time.Sleep(2 * time.Second) // duplicates, if any, would be committed with the next checkpoints
	r.mu.Lock()
	defer r.mu.Unlock()
	for value, n := range r.seen {
		require.Equal(t, 1, n, "%s", value)
	}
	require.Len(t, r.seen, k.sent)
}
