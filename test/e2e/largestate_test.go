package e2e_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/config"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

// A running count of uniform keys takes about four times the memory that its task may hold. Its worker is killed in the middle, and each
// key is counted once.
func TestStateOfFourTimesTheMemoryBudget(t *testing.T) {
	t.Parallel()
	const keys, rounds, budget = 40_000, 2, 1 << 20
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1, ConfigureTaskManager: func(cfg *taskmanager.Config) {
		cfg.StateMemory = config.Bytes(budget)
	}})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "1"}, "--shape", "count", "--in", in, "--out", out, "--interval", "500ms", "--restart-delay", "10ms")
	random := rand.New(rand.NewPCG(1, 2))
	var batch []*kgo.Record
	for range rounds {
		for _, k := range random.Perm(keys) {
			batch = append(batch, &kgo.Record{Topic: in, Partition: int32(k % partitions), Key: fmt.Appendf(nil, "key-%d", k), Value: []byte("x")})
		}
	}
	c.Produce(batch...)

	// All keys have state, and many of them are not in memory.
	harness.Eventually(t, time.Minute, "half of the output", func() error {
		written := int64(0)
		for _, end := range c.EndOffsets(out) {
			written += end
		}
		if written < keys*rounds/2 {
			return fmt.Errorf("%d records are written", written)
		}
		return nil
	})
	pid, tm, err := c.WorkerOf()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))

	counts := map[string]uint64{}
	for _, r := range c.AwaitCommitted(out, keys*rounds, time.Minute) {
		n := binary.BigEndian.Uint64(r.Value)
		key := string(r.Key)
		require.Equal(t, counts[key]+1, n, "count of %s", key)
		counts[key] = n
	}
	require.Len(t, counts, keys)
	for key, n := range counts {
		require.EqualValues(t, rounds, n, "records of %s", key)
	}
	logs, err := filepath.Glob(filepath.Join(c.Dir, tm.ID, "logs", id, "*.log"))
	require.NoError(t, err)
	slowed := 0
	for _, name := range logs {
		log, err := os.ReadFile(name)
		require.NoError(t, err)
		slowed += strings.Count(string(log), "slowed down by the memory budget")
	}
	require.Positive(t, slowed, "the budget was in force")
	c.MustWeir("cancel", id)
}
