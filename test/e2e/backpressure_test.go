package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// checkpointBound is how long a checkpoint may take, whatever is queued.
const checkpointBound = 5 * time.Second

// One key has nine tenths of the records, and its task works them off more slowly than they come: a hundred times at first, or for
// WEIR_HOT_KEY_DURATION half as fast. Barriers stand behind no more than a moment of its work, so that checkpoints complete as if there
// were no queue.
func TestCheckpointsGoOnWithOneHotKey(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Millisecond
	span, err := time.ParseDuration(envOr("WEIR_HOT_KEY_DURATION", "0"))
	require.NoError(t, err)
	n, interval, bytes := 6000, "500ms", 400
	if span > 0 {
		// Nine tenths of the records take the delay each.
		n, interval, bytes = int(2*span/delay*10/9), "5s", 0
	}
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(4, nil), c.Topic(4, nil)
	id := c.Submit([]string{"-p", "4"}, "--shape", "slow", "--delay", delay.String(), "--in", in, "--out", out, "--interval", interval, "--checkpoint-timeout", "30s")
	c.WaitState(id, "RUNNING", 30*time.Second)
	watch := c.WatchCheckpoints(id)
	records := harness.Numbered(in, 4, 1, n)
	for i, r := range records {
		if r.Key = []byte("slow"); i%10 == 0 {
			r.Key = []byte(strconv.Itoa(i))
		}
		if bytes > 0 {
			r.Headers = []kgo.RecordHeader{{Key: "filling", Value: make([]byte, bytes)}}
		}
	}
	began := time.Now()
	var resident []int
	if span == 0 {
		c.Produce(records...)
	} else {
		look := func() { resident = append(resident, footprintOf(t, c, out).resident) }
		produceOver(t, c, span, records, look)
		awaitEnd(t, c, out, n, 2*span, look)
	}
	harness.RequireNumbers(t, c.AwaitCommitted(out, n, 2*time.Duration(n)*delay+30*time.Second), 1, n)
	took := time.Since(began)

	taken, longest := takenSince(watch, began)
	pause, _, _ := watch.LongestPause()
	t.Logf("%d records within %s, %d checkpoints, the longest took %s, %s between two at most; resident kB: %v",
		n, took.Round(time.Millisecond), taken, longest, pause.Round(time.Millisecond), resident)
	require.Greater(t, taken, int(took/(checkpointBound+5*time.Second)))
	require.Less(t, longest, checkpointBound)
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
	if span >= time.Minute {
		first, rest := resident[:len(resident)/4], resident[len(resident)/4:]
		require.LessOrEqual(t, maximum(rest), maximum(first)*5/4+64<<10, "memory grows with the queue")
	}
}

// takenSince counts the checkpoints begun after a time, and returns how long the longest took.
func takenSince(watch *harness.CheckpointWatch, began time.Time) (taken int, longest time.Duration) {
	for _, cp := range watch.All() {
		if cp.Triggered.After(began) {
			taken++
			longest = max(longest, cp.At.Sub(cp.Triggered))
		}
	}
	return taken, longest
}

// produceOver writes records evenly over a time, and looks at something now and then.
func produceOver(t *testing.T, c *harness.Cluster, span time.Duration, records []*kgo.Record, look func()) {
	t.Helper()
	const every = 10 * time.Second
	began, looked, sent := time.Now(), time.Now(), 0
	for sent < len(records) {
		due := min(len(records), int(float64(len(records))*time.Since(began).Seconds()/span.Seconds())+1)
		c.Produce(records[sent:due]...)
		sent = due
		if time.Since(looked) > every {
			look()
			looked = time.Now()
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// awaitEnd waits until at least n offsets of a topic are committed, without reading them, and looks at something every 10 s.
func awaitEnd(t *testing.T, c *harness.Cluster, topic string, n int, timeout time.Duration, look func()) {
	t.Helper()
	client, err := c.Broker.Client()
	require.NoError(t, err)
	defer client.Close()
	looked := time.Now()
	harness.Eventually(t, timeout, "the job to have worked everything off", func() error {
		if time.Since(looked) > 10*time.Second {
			look()
			looked = time.Now()
		}
		ends, err := kadm.NewClient(client).ListCommittedOffsets(t.Context(), topic)
		if err != nil {
			return err
		}
		sum := 0
		ends.Each(func(o kadm.ListedOffset) { sum += int(o.Offset) })
		if sum < n {
			return fmt.Errorf("%d of %d are there", sum, n)
		}
		return nil
	})
}

func maximum(of []int) (most int) {
	for _, n := range of {
		most = max(most, n)
	}
	return most
}

// A sink that becomes ten times slower under full load has ten times the work before it that was on its way. Checkpoints still complete
// soon, from the first one on.
func TestCheckpointsGoOnWhenTheSinkSlowsDown(t *testing.T) {
	t.Parallel()
	const (
		n     = 80_000
		delay = 200 * time.Microsecond // of each of two tasks, or ten times that
		slow  = 8 * time.Second
	)
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	brake := filepath.Join(c.Dir, "brake")
	records := harness.Numbered(in, 2, 1, n)
	for _, r := range records {
		r.Headers = []kgo.RecordHeader{{Key: "filling", Value: make([]byte, 200)}}
	}
	c.Produce(records...)
	id := c.Submit([]string{"-p", "2"}, "--shape", "braked", "--delay", delay.String(), "--brake", brake, "--in", in, "--out", out, "--interval", "500ms", "--checkpoint-timeout", "30s")
	watch := c.WatchCheckpoints(id)
	emitted := func() (sum int) {
		client, err := c.Broker.Client()
		require.NoError(t, err)
		defer client.Close()
		ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), out)
		require.NoError(t, err)
		ends.Each(func(o kadm.ListedOffset) { sum += int(o.Offset) })
		return sum
	}
	rate := func(over time.Duration) float64 {
		began, before := time.Now(), emitted()
		time.Sleep(over)
		return float64(emitted()-before) / time.Since(began).Seconds()
	}
	awaitEnd(t, c, out, n/20, 40*time.Second, func() {})
	full := rate(2 * time.Second)
	braked := time.Now()
	require.NoError(t, os.WriteFile(brake, nil, 0o600))
	slowed := rate(slow)
	taken, longest := takenSince(watch, braked)
	left := n - emitted()
	require.NoError(t, os.Remove(brake))
	t.Logf("%.0f records per second at full speed, %.0f with the brake on; %d checkpoints meanwhile, the longest took %s; %d records were left", full, slowed, taken, longest, left)
	require.Less(t, slowed, full/2, "the sink has not become slow")
	require.Positive(t, left, "nothing was queued")
	require.GreaterOrEqual(t, taken, int(slow/checkpointBound))
	harness.RequireNumbers(t, c.AwaitCommitted(out, n, 60*time.Second), 1, n)
	_, longest = takenSince(watch, braked)
	require.Less(t, longest, checkpointBound)
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
	c.MustWeir("cancel", id)
}
