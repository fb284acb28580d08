package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// Two jobs go on from one savepoint of a third that runs on. Each restarts, restores and ends as it likes; what the others have open
// stays what it is.
func TestJobsOfOneSavepointLeaveEachOtherAlone(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 3})
	in := c.Topic(partitions, nil)
	begin := func(name string, flags ...string) (id, out string) {
		out = c.Topic(partitions, nil)
		args := append([]string{"--shape", "keyed", "--in", in, "--out", out}, seldom...)
		return c.Submit(append([]string{"-p", "2", "--name", name}, flags...), args...), out
	}
	parent, parentOut := begin("parent")
	writeOn(t, c, parent, in)
	savepoint := publish(t, c, parent, parentOut, 1, 100)
	c.Produce(harness.Numbered(in, partitions, 101, 200)...)
	awaitOpen(t, c, parent)
	first, firstOut := begin("first", "--from", savepoint)
	second, secondOut := begin("second", "--from", savepoint)
	for id, out := range map[string]string{first: firstOut, second: secondOut} {
		c.WaitState(id, "RUNNING", 40*time.Second)
		publish(t, c, id, out, 101, 200)
	}
	c.Produce(harness.Numbered(in, partitions, 201, 300)...)
	for _, id := range []string{first, second} {
		awaitOpen(t, c, id)
	}
	ofParent, ofFirst := describeOpen(t, c, parent), describeOpen(t, c, first)

	// The second one restarts, which fences, takes a checkpoint, which commits, restarts again, and is stopped.
	restart := func() {
		t.Helper()
		attempt := c.Job(second).Attempt
		for _, pid := range c.WorkersOf(secondOut) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		harness.Eventually(t, 30*time.Second, "the next attempt", func() error {
			if v := c.Job(second); v.State != "JOB_STATE_RUNNING" || v.Attempt == attempt {
				return fmt.Errorf("attempt %s is %s", v.Attempt, v.State)
			}
			return nil
		})
	}
	restart()
	awaitOpen(t, c, second)
	publish(t, c, second, secondOut, 101, 300)
	restart()
	c.MustWeir("stop", second)
	requireNoneOpen(t, c, second, secondOut)
	require.Equal(t, ofParent, describeOpen(t, c, parent))
	require.Equal(t, ofFirst, describeOpen(t, c, first))
	requireCanceled(t, c, first, firstOut)
	harness.RequireNumbers(t, c.Committed(firstOut), 101, 200)
	require.Equal(t, ofParent, describeOpen(t, c, parent))

	publish(t, c, parent, parentOut, 1, 300)
	c.MustWeir("stop", parent)
	requireNoneOpen(t, c, parent, parentOut)
	harness.RequireNumbers(t, c.Committed(parentOut), 1, 300)
	harness.RequireNumbers(t, c.Committed(secondOut), 101, 300)
	for _, id := range []string{parent, first} {
		require.Equal(t, "0", orZero(c.Job(id).Restarts))
	}
}

// publish takes savepoints until the numbers first to last are committed, and returns the last one.
func publish(t *testing.T, c *harness.Cluster, id, out string, first, last int) (savepoint string) {
	t.Helper()
	harness.Eventually(t, 40*time.Second, "the job's output", func() error {
		savepoint = strings.TrimSpace(c.MustWeir("savepoint", id))
		if n := len(c.Committed(out)); n < last-first+1 {
			return fmt.Errorf("%d numbers are there", n)
		}
		return nil
	})
	harness.RequireNumbers(t, c.Committed(out), first, last)
	return savepoint
}

// awaitOpen waits until a job has written into a transaction.
func awaitOpen(t *testing.T, c *harness.Cluster, id string) {
	t.Helper()
	harness.Eventually(t, 40*time.Second, "open transactions of job "+id, func() error {
		if len(openOf(t, c, id)) < 2 {
			return fmt.Errorf("there are not two")
		}
		return nil
	})
}

// describeOpen returns what identifies each open transaction of a job.
func describeOpen(t *testing.T, c *harness.Cluster, job string) map[string]string {
	t.Helper()
	client, err := c.Broker.Client()
	require.NoError(t, err)
	defer client.Close()
	out := openOf(t, c, job)
	for id := range out {
		d, err := kadm.NewClient(client).DescribeTransactions(t.Context(), id)
		require.NoError(t, err)
		txn, err := d.On(id, nil)
		require.NoError(t, err)
		out[id] = fmt.Sprintf("%s, producer %d epoch %d, since %d", txn.State, txn.ProducerID, txn.ProducerEpoch, txn.StartTimestamp)
	}
	return out
}
