package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

// seldom are arguments for a job that no test lives to see take a checkpoint by itself; a new one takes one at its start, for its
// positions.
var seldom = []string{"--interval", "10m", "--checkpoint-timeout", "30s", "--tolerated-failures", "0"}

// However a job ends, and wherever it stands then, the broker has no open transaction of it soon after the answer.
func TestEndedJobsLeaveNothingOpen(t *testing.T) {
	t.Parallel()
	c := harness.StartWithFaultPoints(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 2, Slots: 2,
		ConfigureJobManager:  func(cfg *jobmanager.Config) { cfg.CancelDeadline = time.Second },
		ConfigureTaskManager: func(cfg *taskmanager.Config) { cfg.CancelDeadline = time.Second },
	})
	// writes starts a job that has transactions open.
	writes := func(t *testing.T, args ...string) (on *harness.Cluster, id, in, out string) {
		on = c.For(t)
		in, out = on.Topic(partitions, nil), on.Topic(partitions, nil)
		id = on.Submit([]string{"-p", "4", "--name", strings.ReplaceAll(t.Name(), "/", "-")}, append(append([]string{"--in", in, "--out", out}, seldom...), args...)...)
		writeOn(t, on, id, in)
		return on, id, in, out
	}
	t.Run("canceled before a checkpoint", func(t *testing.T) {
		c, id, _, out := writes(t, "--shape", "pass")
		requireCanceled(t, c, id, out)
		require.Empty(t, c.Committed(out))
	})
	t.Run("canceled while it deploys", func(t *testing.T) {
		c := c.For(t)
		in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
		whileDeploying(t, c, func() (id string) {
			id = c.Submit([]string{"-p", "4", "--detach"}, "--shape", "pass", "--in", in, "--out", out)
			return id
		}, out)
	})
	t.Run("canceled while it restarts", func(t *testing.T) {
		c, id, _, out := writes(t, "--shape", "pass")
		whileDeploying(t, c, func() string {
			killWorker(t, c)
			return id
		}, out)
		require.Empty(t, c.Committed(out))
	})
	t.Run("canceled while it waits for its restart", func(t *testing.T) {
		c, id, in, out := writes(t, "--shape", "pass", "--restart-delay", "10m")
		killWorker(t, c) // the first restart comes at once
		c.WaitState(id, "RUNNING", 20*time.Second)
		writeOn(t, c, id, in)
		killWorker(t, c)
		c.WaitState(id, "RESTARTING", 20*time.Second)
		requireCanceled(t, c, id, out)
		require.Empty(t, c.Committed(out))
	})
	t.Run("failed", func(t *testing.T) {
		c, id, in, out := writes(t, "--shape", "boom", "--max-restarts", "0")
		c.Produce(&kgo.Record{Topic: in, Value: []byte("boom")})
		c.WaitState(id, "FAILED", 30*time.Second)
		requireNoneOpen(t, c, id, out)
		require.Empty(t, c.Committed(out))
	})
	t.Run("stopped", func(t *testing.T) {
		c, id, _, out := writes(t, "--shape", "pass")
		c.MustWeir("stop", id)
		requireNoneOpen(t, c, id, out)
		harness.RequireNumbers(t, c.Committed(out), 1, 100)
	})
	// What a dead attempt left is ended by the next one, and nobody else's.
	t.Run("killed before a checkpoint", func(t *testing.T) {
		c, id, _, out := writes(t, "--shape", "pass")
		foreign := startForeign(t, c, out)
		for _, p := range c.TaskManagers() {
			require.NoError(t, p.Kill())
		}
		left := openOf(t, c, id)
		require.NotEmpty(t, left, "nothing was open: the test shows nothing")
		for _, p := range c.TaskManagers() {
			require.NoError(t, p.Start())
		}
		harness.Eventually(t, 40*time.Second, "the next attempt", func() error {
			if v := c.Job(id); v.State != "JOB_STATE_RUNNING" || v.Attempt == "1" {
				return fmt.Errorf("attempt %s is %s", v.Attempt, v.State)
			}
			return nil
		})
		harness.Eventually(t, 15*time.Second, "the former attempt's transactions to be ended", func() error {
			for txn := range openOf(t, c, id) {
				if _, former := left[txn]; former {
					return fmt.Errorf("%s is open", txn)
				}
			}
			return nil
		})
		c.MustWeir("cancel", id)
		foreign.requireUntouched(t, c)
		requireNoneOpen(t, c, id, out)
		require.Len(t, c.Committed(out), 1, "the foreign producer's record and nothing else")
	})
}

// writeOn lets a running job write a hundred numbers into transactions that stay open.
func writeOn(t *testing.T, c *harness.Cluster, id, in string) {
	t.Helper()
	c.WaitState(id, "RUNNING", 30*time.Second)
	before := len(openOf(t, c, id))
	c.Produce(harness.Numbered(in, partitions, 1, 100)...)
	harness.Eventually(t, 20*time.Second, "open transactions", func() error {
		if n := len(openOf(t, c, id)); n < 2 || n < before {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
}

// whileDeploying cancels a job the next attempt of which has prepared and does not come to say so.
func whileDeploying(t *testing.T, c *harness.Cluster, begin func() (id string), out string) {
	t.Helper()
	for _, p := range c.TaskManagers() {
		c.Arm(p, faultpoint.PreparedDue, "hang")
	}
	id := begin()
	c.AwaitAnyFired(c.TaskManagers(), faultpoint.PreparedDue, 30*time.Second)
	require.NotEqual(t, "JOB_STATE_RUNNING", c.Job(id).State)
	for _, p := range c.TaskManagers() {
		c.Disarm(p, faultpoint.PreparedDue) // for the attempt that settles
	}
	requireCanceled(t, c, id, out)
}

// requireCanceled cancels a job and checks that nothing of it is open.
func requireCanceled(t *testing.T, c *harness.Cluster, id, out string) {
	t.Helper()
	r := answered(t, c, "cancel", id)
	require.Zero(t, r.Code, r.Stderr)
	v := c.Job(id)
	require.Equal(t, "JOB_STATE_CANCELED", v.State)
	require.Empty(t, v.Unsettled)
	requireNoneOpen(t, c, id, out)
}

// idsOf returns the state of each transactional id of a job that the broker knows.
func idsOf(t *testing.T, c *harness.Cluster, job string) map[string]string {
	t.Helper()
	ids, err := c.Broker.TransactionalIDs(t.Context(), "")
	require.NoError(t, err)
	maps.DeleteFunc(ids, func(id, _ string) bool { return !strings.Contains(id, "."+job+".") })
	return ids
}

// openOf returns the state of each transactional id of a job on which the broker has something open.
func openOf(t *testing.T, c *harness.Cluster, job string) map[string]string {
	t.Helper()
	ids := idsOf(t, c, job)
	maps.DeleteFunc(ids, func(_, state string) bool { return state != "Ongoing" && !strings.HasPrefix(state, "Prepare") })
	return ids
}

// requireNoneOpen waits at most 5 s until the coordinators know no open transaction of a job, and no reader of its output is held back.
func requireNoneOpen(t *testing.T, c *harness.Cluster, job, out string) {
	t.Helper()
	harness.Eventually(t, 5*time.Second, "the job's transactions to be ended", func() error {
		if open := openOf(t, c, job); len(open) > 0 {
			return fmt.Errorf("open are %v", open)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, c.Broker.WaitNoOpenTransactions(ctx, out))
}

// foreign is a producer that has nothing to do with any job, with an open transaction.
type foreign struct {
	client *kgo.Client
	topic  string
}

func startForeign(t *testing.T, c *harness.Cluster, topic string) *foreign {
	t.Helper()
	client, err := c.Broker.Client(kgo.TransactionalID("weir."+topic+".foreign.1.0.0"), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	require.NoError(t, client.BeginTransaction())
	require.NoError(t, client.ProduceSync(t.Context(), kgo.StringRecord("foreign")).FirstErr())
	return &foreign{client, topic}
}

// requireUntouched commits the transaction, which takes that nobody has ended or fenced it.
func (f *foreign) requireUntouched(t *testing.T, c *harness.Cluster) {
	t.Helper()
	require.NoError(t, f.client.EndTransaction(t.Context(), kgo.TryCommit))
	harness.Eventually(t, 10*time.Second, "the foreign producer's record", func() error {
		for _, r := range c.Committed(f.topic) {
			if string(r.Value) == "foreign" {
				return nil
			}
		}
		return fmt.Errorf("it is not there")
	})
}
