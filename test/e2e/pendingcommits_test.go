package e2e_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// A checkpoint fails when all sinks have prepared for it; the next one publishes what both cover, once, and no task notices.
func TestFailedCheckpointGoesOutWithTheNext(t *testing.T) {
	t.Parallel()
	c := harness.StartWithFaultPoints(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	id := c.Submit([]string{"-p", "2"}, "--shape", "pass", "--in", in, "--out", out, "--interval", "2s")
	c.WaitState(id, "RUNNING", 30*time.Second)
	c.Produce(harness.Numbered(in, 2, 1, 50)...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 50, 30*time.Second), 1, 50)

	leader := c.JobManagers()[0]
	c.Arm(leader, faultpoint.PutDue, "error") // of the metadata
	c.Produce(harness.Numbered(in, 2, 51, 100)...)
	c.AwaitFired(leader, faultpoint.PutDue, 30*time.Second)
	c.Produce(harness.Numbered(in, 2, 101, 150)...)
	harness.Eventually(t, 20*time.Second, "transactions of two intervals to be pending", func() error {
		if open := openOf(t, c, id); len(open) < 3 {
			return fmt.Errorf("open are %v", open)
		}
		return nil
	})
	harness.RequireNumbers(t, c.AwaitCommitted(out, 150, 30*time.Second), 1, 150)
	requireNoneOpen(t, c, id, out)
	require.Contains(t, c.MustWeir("checkpoints", id), "failed")
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
	c.MustWeir("cancel", id)
	harness.RequireNumbers(t, c.Committed(out), 1, 150)
}

// One restore after the other dies within a second of its commits. At last the job dies with everything prepared for a checkpoint that
// does not complete.
func TestKilledRightAfterEachRestore(t *testing.T) {
	t.Parallel()
	c := harness.StartWithFaultPoints(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})
	in, out := c.Topic(2, nil), c.Topic(2, nil)
	id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--interval", "1s", "--max-restarts", "100", "--restart-delay", "1ms")
	c.WaitState(id, "RUNNING", 30*time.Second)
	f := startFeed(t, c, in, 1)
	c.AwaitCommitted(out, 1, 30*time.Second)
	diesAt := func(point faultpoint.Point) {
		t.Helper()
		for _, p := range c.TaskManagers() {
			c.Arm(p, point, "kill")
		}
		c.AwaitAnyFired(c.TaskManagers(), point, 30*time.Second)
		for _, p := range c.TaskManagers() {
			c.Disarm(p, point)
		}
	}
	// Complete, and nothing of it committed.
	diesAt(faultpoint.NoticeReceived)
	for range 5 {
		killAfterRestore(t, c, id)
	}
	c.WaitState(id, "RUNNING", 30*time.Second)
	before := completed(t, c, id)
	harness.Eventually(t, 30*time.Second, "a checkpoint", func() error {
		if completed(t, c, id) == before {
			return fmt.Errorf("there is none")
		}
		return nil
	})
	diesAt(faultpoint.AckSent)
	last := f.end()
	harness.RequireNumbers(t, c.AwaitCommitted(out, last, 40*time.Second), 1, last)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), out))
	require.Equal(t, "JOB_STATE_RUNNING", c.Job(id).State)
	require.Empty(t, openOf(t, c, id))
	c.MustWeir("cancel", id)
	harness.RequireNumbers(t, c.Committed(out), 1, last)
}

// killAfterRestore kills a job's worker within a second of when its attempt began to run.
func killAfterRestore(t *testing.T, c *harness.Cluster, id string) {
	t.Helper()
	attempt := ""
	harness.Eventually(t, 30*time.Second, "a restored attempt", func() error {
		v := c.Job(id)
		if attempt = v.Attempt; v.State != "JOB_STATE_RUNNING" {
			return fmt.Errorf("attempt %s is %s", v.Attempt, v.State)
		}
		return nil
	})
	killWorker(t, c)
	harness.Eventually(t, 30*time.Second, "the next attempt", func() error {
		if c.Job(id).Attempt == attempt {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
}
