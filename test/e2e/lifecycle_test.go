package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

const partitions = 4

func TestLifeOfAJobOnTheCommandLine(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	c.Produce(harness.Numbered(in, partitions, 1, 1000)...)

	// A request id names one job for good.
	submit := []string{"-p", "3", "--name", "numbers", "--request-id", "once"}
	id := c.Submit(submit, "--shape", "keyed", "--in", in, "--out", out)
	require.Equal(t, id, c.Submit(submit, "--shape", "keyed", "--in", in, "--out", out))
	c.WaitState(id, "RUNNING", 20*time.Second)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 1000, 30*time.Second), 1, 1000)

	list := c.MustWeir("list")
	require.Contains(t, list, "numbers")
	require.Contains(t, list, "RUNNING")
	require.Contains(t, c.MustWeir("checkpoints", id), "completed")
	require.Contains(t, c.MustWeir("members"), "jm1")
	require.Equal(t, id, c.Job("numbers").ID, "a job is found by its name")

	// A savepoint while running, then more input, then a stop with a savepoint.
	first := strings.TrimSpace(c.MustWeir("savepoint", id))
	c.Produce(harness.Numbered(in, partitions, 1001, 2000)...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 2000, 30*time.Second), 1, 2000)
	dir := filepath.Join(c.Dir, "savepoints")
	second := strings.TrimSpace(c.MustWeir("stop", id, "--savepoint", "file://"+dir))
	require.Equal(t, "JOB_STATE_STOPPED", c.Job(id).State)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	require.NotEqual(t, first, second)

	// Continue from the savepoint with another parallelism: nothing is read twice or left out.
	c.Produce(harness.Numbered(in, partitions, 2001, 3000)...)
	next := c.Submit([]string{"-p", "1", "--name", "numbers", "--from", second}, "--shape", "keyed", "--in", in, "--out", out)
	require.NotEqual(t, id, next)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 3000, 30*time.Second), 1, 3000)

	// Cancel leaves nothing open and deletes the job's state.
	c.MustWeir("cancel", next)
	require.Equal(t, "JOB_STATE_CANCELED", c.Job(next).State)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	harness.Eventually(t, 20*time.Second, "the cancelled job's state to be deleted", func() error {
		files, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "jobs", next, "*", "*", "*"))
		if len(files) > 0 {
			return fmt.Errorf("there are %v", files)
		}
		return err
	})
	// The savepoint stands on its own.
	again := c.Submit([]string{"-p", "2", "--name", "again", "--from", second}, "--shape", "keyed", "--in", in, "--out", c.Topic(partitions, nil))
	c.WaitState(again, "RUNNING", 20*time.Second)
}

func TestJSONOutputAndExitCodes(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	for _, args := range [][]string{{"list"}, {"members"}, {"version"}, {"config", "jobmanager", "--config", filepath.Join(c.Dir, "jm1.yaml")}} {
		out := c.MustWeir(append(args, "-o", "json")...)
		require.True(t, json.Valid([]byte(out)), "weir %v: %s", args, out)
	}
	for _, args := range [][]string{
		{"show", "nobody"}, {"cancel", "nobody"}, {"stop", "nobody"}, {"savepoint", "nobody"}, {"checkpoints", "nobody"}, {"logs", "nobody"},
	} {
		r := c.Weir(args...)
		require.NotZero(t, r.Code, "weir %v", args)
		require.Contains(t, r.Stderr, "nobody", "weir %v", args)
		require.Empty(t, r.Stdout)
	}
}

func TestIdleJobTakesNoCheckpointsAndWritesNothing(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--interval", "100ms")
	c.WaitState(id, "RUNNING", 20*time.Second)
	for n := 1; n <= 5; n++ {
		c.Produce(harness.Numbered(in, 1, n, n)...)
		harness.RequireNumbers(t, c.AwaitCommitted(out, n, 10*time.Second), 1, n)
	}
	var before string
	harness.Eventually(t, 20*time.Second, "checkpoints to cease", func() error {
		was := before
		before = c.Job(id).Completed
		time.Sleep(time.Second)
		if was != before {
			return fmt.Errorf("%s completed, then %s", was, before)
		}
		return nil
	})
	end := c.EndOffsets(out)
	time.Sleep(3 * time.Second)
	require.Equal(t, before, c.Job(id).Completed, "completed checkpoints")
	require.Equal(t, end, c.EndOffsets(out), "end offsets of the output")
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
}

func TestShortCheckpointIntervalIsSustained(t *testing.T) {
	for client, interval := range map[string]time.Duration{"native": 100 * time.Millisecond, "confluent": time.Second} {
		t.Run(client, func(t *testing.T) {
			c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
			run := c.StartOrders(60_000, 4000)
			id := c.Submit([]string{"-p", "2"}, run.Args("--client", client, "--interval", interval.String())...)
			c.WaitState(id, "RUNNING", 20*time.Second)
			run.AwaitOutput(time.Now(), 30*time.Second)
			before, at := completed(t, c, id), time.Now()
			const span = 8 * time.Second
			time.Sleep(span)
			got := completed(t, c, id) - before
			want := int(time.Since(at) / interval)
			t.Logf("%d checkpoints completed in %s at an interval of %s", got, span, interval)
			require.GreaterOrEqual(t, got, want/2, "completed checkpoints in %s", span)
			run.RequireExactlyOnce(time.Minute)
			require.Equal(t, "0", orZero(c.Job(id).Restarts))
		})
	}
}

func TestLogsOfAJobAreKept(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	c.Produce(harness.Numbered(in, 1, 1, 1)...)
	id := c.Submit(nil, "--shape", "boom", "--in", in, "--out", out, "--max-restarts", "0")
	c.WaitState(id, "RUNNING", 20*time.Second)
	boom := harness.Numbered(in, 1, 2, 2)
	boom[0].Value = []byte("boom")
	c.Produce(boom...)
	v := c.WaitState(id, "FAILED", 30*time.Second)
	require.Contains(t, v.Failures[len(v.Failures)-1].Message, "boom")
	require.Contains(t, v.Failures[len(v.Failures)-1].Message, "fuse")
	require.Contains(t, c.MustWeir("logs", id), "about to go off")
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	_, err := os.Stat(filepath.Join(c.Dir, "storage"))
	require.NoError(t, err)
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

func completed(t *testing.T, c *harness.Cluster, id string) int {
	t.Helper()
	n, err := strconv.Atoi(orZero(c.Job(id).Completed))
	require.NoError(t, err)
	return n
}
