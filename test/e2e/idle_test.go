package e2e_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/internal/usage"
	"github.com/weir-stream/weir/test/harness"
)

// A cluster that has nothing to do fits into 150 MB, pages that its processes share counted once.
func TestIdleClusterIsSmall(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2})
	var kb int
	for _, p := range append(c.JobManagers(), c.TaskManagers()...) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.PID()))
		if err != nil {
			t.Skipf("the kernel does not tell what memory processes share: %v", err)
		}
		_, rest, ok := strings.Cut(string(text), "\nPss:")
		require.True(t, ok)
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(t, err)
		t.Logf("%s: %d kB", p.ID, n)
		kb += n
	}
	t.Logf("together %d kB", kb)
	require.Less(t, kb, 150_000)
}

// Jobs without input cost little: WEIR_IDLE_JOBS of them, each with a worker process of its own, leave most of one core alone, the cluster's
// own processes included. A hundred take less than a fifth of it.
func TestIdleJobsCostLittle(t *testing.T) {
	t.Parallel()
	jobs := numberOr(t, "WEIR_IDLE_JOBS", "3")
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: jobs})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	for n := range jobs {
		id := c.Submit([]string{"--name", fmt.Sprintf("idle-%d", n)}, "--shape", "pass", "--in", in, "--out", out, "--interval", "1s")
		c.WaitState(id, "RUNNING", 30*time.Second)
	}
	c.Produce(harness.Numbered(in, 1, 1, 1)...)
	c.AwaitCommitted(out, jobs, time.Minute)
	pids := []int{c.JobManagers()[0].PID(), c.TaskManagers()[0].PID()}
	pids = append(pids, c.TaskManagers()[0].Children()...)
	require.Len(t, pids, jobs+2)
	used := func(pids []int) time.Duration {
		sum, err := usage.CPU(pids...)
		require.NoError(t, err)
		return sum
	}
	span, limit := 3*time.Second, 0.4
	if jobs >= 100 {
		span, limit = 30*time.Second, 0.2
	}
	parts := map[string][]int{"JobManager": pids[:1], "TaskManager": pids[1:2], "workers": pids[2:]}
	before := map[string]time.Duration{}
	for name, of := range parts {
		before[name] = used(of)
	}
	at := time.Now()
	time.Sleep(span)
	var share float64
	for name, of := range parts {
		part := (used(of) - before[name]).Seconds() / time.Since(at).Seconds()
		t.Logf("%d idle jobs: the %s used %.1f %% of a core", jobs, name, 100*part)
		share += part
	}
	require.Less(t, share, limit)
}
