package e2e_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// One key has nine tenths of the records, and its task works them off a hundred times slower than they come. Barriers stand behind no
// more than a moment of its work, so that checkpoints complete as if there were no queue.
func TestCheckpointsGoOnWithOneHotKey(t *testing.T) {
	t.Parallel()
	const (
		n     = 6000
		delay = 2 * time.Millisecond
		bound = 5 * time.Second // with a queue in the way it would take as long as the whole input
	)
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(4, nil), c.Topic(4, nil)
	id := c.Submit([]string{"-p", "4"}, "--shape", "slow", "--delay", delay.String(), "--in", in, "--out", out, "--interval", "500ms", "--checkpoint-timeout", "30s")
	c.WaitState(id, "RUNNING", 30*time.Second)
	watch := c.WatchCheckpoints(id)
	records := harness.Numbered(in, 4, 1, n)
	for i, r := range records {
		if r.Key = []byte("slow"); i%10 == 0 {
			r.Key = []byte(strconv.Itoa(i))
		}
		r.Headers = []kgo.RecordHeader{{Key: "filling", Value: make([]byte, 400)}}
	}
	began := time.Now()
	c.Produce(records...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, n, 2*n*delay+30*time.Second), 1, n)
	took := time.Since(began)

	var longest time.Duration
	taken := 0
	for _, cp := range watch.All() {
		if cp.Triggered.After(began) {
			taken++
			longest = max(longest, cp.At.Sub(cp.Triggered))
		}
	}
	t.Logf("%d records within %s, %d checkpoints, the longest took %s", n, took.Round(time.Millisecond), taken, longest)
	require.Greater(t, taken, int(took/bound))
	require.Less(t, longest, bound)
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
}
