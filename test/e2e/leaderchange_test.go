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

// undisturbed is a job under load of which no task may be restarted, whatever happens to JobManagers.
type undisturbed struct {
	c       *harness.Cluster
	run     *harness.OrderRun
	id      string
	watch   *harness.CheckpointWatch
	workers map[string][]int // process ids by TaskManager
	before  harness.JobView
}

// startUndisturbed submits a job that reads n orders at a rate per second, and waits until it has output.
func startUndisturbed(t *testing.T, c *harness.Cluster, n, rate uint64, parallelism int) *undisturbed {
	t.Helper()
	u := &undisturbed{c: c, run: c.StartOrders(n, rate)}
	u.id = c.Submit([]string{"-p", fmt.Sprint(parallelism)}, u.run.Args()...)
	c.WaitState(u.id, "RUNNING", 30*time.Second)
	u.run.AwaitOutput(time.Now(), 30*time.Second)
	u.watch = c.WatchCheckpoints(u.id)
	u.workers, u.before = c.WorkersByTaskManager(), c.Job(u.id)
	require.NotEmpty(t, u.workers)
	return u
}

// require checks that every task runs on in the process and the attempt that it began in.
func (u *undisturbed) require(t *testing.T) {
	t.Helper()
	now := u.c.WaitState(u.id, "RUNNING", 20*time.Second)
	require.Equal(t, u.before.Attempt, now.Attempt, "attempt; failures %v", now.Failures)
	require.Equal(t, u.before.Restarts, now.Restarts, "restarts")
	require.Equal(t, u.workers, u.c.WorkersByTaskManager(), "worker processes")
}

// awaitCheckpoint waits for a checkpoint that began after since and is complete, and returns it.
func (u *undisturbed) awaitCheckpoint(t *testing.T, since time.Time) harness.Completed {
	t.Helper()
	harness.Eventually(t, 20*time.Second, "a checkpoint taken since", func() error {
		if last := u.watch.Last(); !last.Triggered.After(since) {
			return fmt.Errorf("the last one is %d, begun %s before", last.ID, since.Sub(last.Triggered))
		}
		return nil
	})
	return u.watch.Last()
}

// end waits for all results, checks the account, cancels the job and looks for what it may have left open.
func (u *undisturbed) end(t *testing.T) {
	t.Helper()
	u.run.RequireExactlyOnce(time.Minute)
	u.require(t)
	u.c.MustWeir("cancel", u.id)
	require.Equal(t, "JOB_STATE_CANCELED", u.c.Job(u.id).State)
	require.NoError(t, u.c.Broker.WaitNoOpenTransactions(t.Context(), u.run.Topics.Totals))
	for _, pids := range u.workers {
		harness.AwaitDead(t, pids, 5*time.Second)
	}
}

// The tasks of the dead TaskManager start elsewhere, once, and go on where the last checkpoint in the log is.
func TestLeaderAndTaskManagerDieTogether(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 3, Slots: 1})
	u := startUndisturbed(t, c, 16*3000, 3000, 2)
	victim, _ := busyTaskManager(t, c)
	at := time.Now()
	killLeaderAnd(t, c, victim)
	cp := u.awaitCheckpoint(t, at)
	t.Logf("checkpoint %d complete %s later", cp.ID, cp.At.Sub(at).Round(time.Millisecond))
	u.run.RequireExactlyOnce(time.Minute)
	require.Equal(t, "1", orZero(c.WaitState(u.id, "RUNNING", 20*time.Second).Restarts), "restarts")
	c.MustWeir("cancel", u.id)
	requireNothingLeft(t, c, u.run.Topics.Totals)
}

// killLeaderAnd kills the leader, waits for another one, and starts the killed one again; it returns when that belongs to the cluster.
func killLeaderAnd(t *testing.T, c *harness.Cluster, more ...*localcluster.Process) {
	t.Helper()
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	dead := append([]*localcluster.Process{leader}, more...)
	for _, p := range dead {
		require.NoError(t, p.Signal(syscall.SIGKILL))
	}
	for _, p := range dead {
		_ = p.Wait() // killed
	}
	_, err = c.WaitLeader(t.Context())
	require.NoError(t, err)
	for _, p := range dead {
		require.NoError(t, p.Start())
	}
	c.WaitWhole(30 * time.Second)
}

// Everything with default settings. The pause is measured between completions, so it holds the election, the registration of the
// TaskManagers with the new leader, and its first checkpoint.
func TestTwentyLeaderKillsRestartNoTask(t *testing.T) {
	const (
		kills = 20
		rate  = 20_000
		load  = 50 // seconds
	)
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 1})
	u := startUndisturbed(t, c, load*rate, rate, 2)
	require.Len(t, u.workers, 2, "TaskManagers with tasks")
	begin, stall := time.Now(), harness.WatchStalls(t)
	for n := range kills {
		at := time.Now()
		killLeaderAnd(t, c)
		cp := u.awaitCheckpoint(t, at)
		t.Logf("kill %2d: checkpoint %d complete %s later", n+1, cp.ID, cp.At.Sub(at).Round(time.Millisecond))
		u.require(t)
	}
	took := time.Since(begin)
	require.False(t, u.run.Finished(), "the load ended before the kills")
	u.end(t)
	pause, from, to := u.watch.LongestPause()
	t.Logf("%d kills within %s, %d orders, %d checkpoints, longest pause between completions %s (%d to %d), longest stall of the machine %s",
		kills, took.Round(time.Second), u.run.Produced.Load(), len(u.watch.All()), pause, from.ID, to.ID, stall())
	require.Less(t, pause, 3*time.Second+stall())
}

func TestTwoOfFiveJobManagersDieTogether(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 5, TaskManagers: 2, Slots: 1})
	u := startUndisturbed(t, c, 12*3000, 3000, 2)
	for range 2 {
		leader, err := c.WaitLeader(t.Context())
		require.NoError(t, err)
		follower := c.JobManagers()[0]
		if follower == leader {
			follower = c.JobManagers()[1]
		}
		at := time.Now()
		killLeaderAnd(t, c, follower)
		u.awaitCheckpoint(t, at)
		u.require(t)
	}
	u.end(t)
}
