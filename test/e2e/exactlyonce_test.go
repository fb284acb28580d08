package e2e_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// fault is something that happens to a cluster under load.
type fault struct {
	name string
	do   func(t *testing.T, c *harness.Cluster)
}

func killWorker(t *testing.T, c *harness.Cluster) {
	var pid int
	harness.Eventually(t, 20*time.Second, "a worker", func() (err error) {
		pid, _, err = c.WorkerOf()
		return err
	})
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
}

func killTaskManager(t *testing.T, c *harness.Cluster) {
	var victim *localcluster.Process
	harness.Eventually(t, 20*time.Second, "a busy TaskManager", func() (err error) {
		_, victim, err = c.WorkerOf()
		return err
	})
	workers := harness.Workers(victim)
	require.NoError(t, victim.Kill())
	harness.Eventually(t, 5*time.Second, "the workers of the killed TaskManager to be dead", func() error {
		for _, pid := range workers {
			if err := syscall.Kill(pid, 0); err == nil {
				return fmt.Errorf("worker %d lives", pid)
			}
		}
		return nil
	})
	require.NoError(t, victim.Start())
}

func killLeader(t *testing.T, c *harness.Cluster) {
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	require.NoError(t, leader.Kill())
	require.NoError(t, leader.Start())
}

func killFollower(t *testing.T, c *harness.Cluster) {
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	for _, p := range c.JobManagers() {
		if p != leader {
			require.NoError(t, p.Kill())
			require.NoError(t, p.Start())
			return
		}
	}
}

func killEverything(t *testing.T, c *harness.Cluster) {
	all := append(c.TaskManagers(), c.JobManagers()...)
	for _, p := range all {
		require.NoError(t, p.Signal(syscall.SIGKILL))
	}
	for _, p := range all {
		_ = p.Wait()
	}
	for _, p := range all {
		require.NoError(t, p.Start())
	}
}

var faults = []fault{
	{"worker", killWorker},
	{"TaskManager", killTaskManager},
	{"leading JobManager", killLeader},
	{"following JobManager", killFollower},
	{"everything", killEverything},
}

// Each kill waits until the job runs again and has committed output.
func TestKillOfAnyProcessLosesAndRepeatsNothing(t *testing.T) {
	for _, client := range []string{"native", "confluent"} {
		t.Run(client, func(t *testing.T) {
			killAll(t, client, func(c *harness.Cluster, run *harness.OrderRun, id string) {
				c.WaitState(id, "RUNNING", 30*time.Second)
				run.AwaitOutput(time.Now(), 40*time.Second)
			})
		})
	}
}

// The next kill comes while the cluster is still busy with the one before.
func TestKillsInQuickSuccession(t *testing.T) {
	killAll(t, "native", func(*harness.Cluster, *harness.OrderRun, string) { time.Sleep(400 * time.Millisecond) })
}

func killAll(t *testing.T, client string, between func(*harness.Cluster, *harness.OrderRun, string)) {
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2})
	run := c.StartOrders(90_000, 3000)
	id := c.Submit([]string{"-p", "2"}, run.Args("--client", client)...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	for _, f := range faults {
		at := time.Now()
		f.do(t, c)
		between(c, run, id)
		t.Logf("kill of %s: went on after %s", f.name, time.Since(at).Round(time.Millisecond))
	}
	run.RequireExactlyOnce(time.Minute)
	c.MustWeir("cancel", id)
	require.Equal(t, "JOB_STATE_CANCELED", c.Job(id).State)
	require.NoError(t, c.Broker.WaitNoOpenTransactions(t.Context(), run.Topics.Totals))
}
