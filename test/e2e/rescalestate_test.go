package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// All keys are in one subtask; its checkpoint, the restore after the death of its TaskManager and a rescale have to cope with that. The
// pause is taken from the last record that a read_committed reader gets before the job stands still to the first one after it.
// WEIR_RESCALE_KEYS says how many keys.
func TestRescaleOfManyKeys(t *testing.T) {
	keys := numberOr(t, "WEIR_RESCALE_KEYS", "300000")
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "1"}, "--shape", "hoard", "--in", in, "--out", out)
	batch := make([]*kgo.Record, 0, 5000)
	for n := range keys {
		value := fmt.Sprintf("%d %s", n, strings.Repeat("v", 56))
		batch = append(batch, &kgo.Record{Topic: in, Partition: int32(n % partitions), Key: fmt.Appendf(nil, "key-%d", n), Value: []byte(value)})
		if len(batch) == cap(batch) || n == keys-1 {
			c.Produce(batch...)
			batch = batch[:0]
		}
	}
	reader := readCommitted(t, c, out)
	ticks := tick(t, c, in)
	harness.Eventually(t, 2*time.Minute, "the state to be in a checkpoint", func() error {
		if n := totalBytes(t, c, id); n < keys*64 {
			return fmt.Errorf("the last checkpoint has %d bytes", n)
		}
		return nil
	})
	reader.next(t, time.Now())
	stall := harness.WatchStalls(t)
	var pauses []time.Duration
	for _, n := range []string{"2", "1", "4"} {
		rescaled := make(chan harness.Result, 1)
		longest := reader.longestGap(t, func() {
			go func() { rescaled <- c.Weir("rescale", id, n) }()
			r := <-rescaled
			require.Zero(t, r.Code, r.Stderr)
			reader.next(t, time.Now())
		})
		pauses = append(pauses, longest)
	}
	t.Logf("%d keys, %d bytes of state: pauses of rescales 1 → 2 → 1 → 4 %v, longest stall of the machine %s", keys, totalBytes(t, c, id), pauses, stall())
	for _, p := range pauses {
		require.Less(t, p, 3*time.Second+stall())
	}

	// The same state after a TaskManager's death.
	attempt := c.Job(id).Attempt
	victim, _ := busyTaskManager(t, c)
	require.NoError(t, victim.Kill())
	require.NoError(t, victim.Start())
	harness.Eventually(t, time.Minute, "the next attempt", func() error {
		if j := c.Job(id); j.State != "JOB_STATE_RUNNING" || j.Attempt == attempt {
			return fmt.Errorf("attempt %s is %s", j.Attempt, j.State)
		}
		return nil
	})
	require.GreaterOrEqual(t, totalBytes(t, c, id), keys*64)
	ticks.stop()
	reader.requireEach(t, ticks)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
}

// longestGap is the longest time without committed output while do runs.
func (r *committedReader) longestGap(t *testing.T, do func()) (longest time.Duration) {
	t.Helper()
	done := make(chan struct{})
	ended := make(chan time.Duration)
	last := r.next(t, time.Now().Add(-time.Minute))
	go func() {
		var gap time.Duration
		for {
			select {
			case <-done:
				ended <- gap
				return
			case <-time.After(2 * time.Millisecond):
			}
			r.mu.Lock()
			now := r.last
			r.mu.Unlock()
			gap, last = max(gap, now.Sub(last)), now
		}
	}()
	do()
	close(done)
	return <-ended
}
