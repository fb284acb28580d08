package e2e_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// A leader that stands still for ten seconds is replaced, and gives way when it goes on, without a task noticing either.
func TestFrozenLeaderGivesWay(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 1})
	u := startUndisturbed(t, c, 18*3000, 3000, 2)
	old, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	at := time.Now()
	freeze(t, old.PID())
	next := awaitOtherLeader(t, c, old)
	cp := u.awaitCheckpoint(t, at)
	t.Logf("frozen leader: checkpoint %d complete %s later under %s", cp.ID, cp.At.Sub(at).Round(time.Millisecond), next.ID)
	time.Sleep(time.Until(at.Add(10 * time.Second)))
	thawed := time.Now()
	thaw(t, old.PID())
	c.WaitWhole(30 * time.Second)
	u.awaitCheckpoint(t, thawed)
	require.True(t, c.Leads(t.Context(), next), "the thawed leader took over")
	requireSilentAfter(t, old, thawed)
	u.end(t)
}

// zombie is a way in which the tasks of a TaskManager come back after they were redeployed.
type zombie struct {
	name string
	// frozen tells what stands still; thawed in which order it goes on.
	taskManager, worker bool
	workerFirst         bool
}

// The tasks are redeployed elsewhere while their former processes stand still, or go on without a TaskManager that could tell them. When
// those come back, nothing that they have begun becomes visible, their tasks are stopped, and the TaskManager takes new ones.
func TestFrozenTaskManagerComesBackAsFresh(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 3, Slots: 1})
	run := c.StartOrders(32*2000, 2000)
	id := c.Submit([]string{"-p", "2"}, run.Args()...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	for _, z := range []zombie{
		{name: "TaskManager alone, its worker writes on", taskManager: true},
		{name: "both, the worker goes on first", taskManager: true, worker: true, workerFirst: true},
		{name: "both, the TaskManager goes on first", taskManager: true, worker: true},
	} {
		t.Run(z.name, func(t *testing.T) { comesBack(t, c.For(t), run, id, z) })
	}
	run.RequireExactlyOnce(time.Minute)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, run.Topics.Totals)
}

func comesBack(t *testing.T, c *harness.Cluster, run *harness.OrderRun, id string, z zombie) {
	tm, worker := busyTaskManager(t, c)
	before := c.Job(id)
	at := time.Now()
	if z.worker {
		freezeWithinTransactions(t, c, id, worker)
	}
	freeze(t, tm.PID())
	harness.Eventually(t, 20*time.Second, "the tasks to run elsewhere", func() error {
		job := c.Job(id)
		if job.State != "JOB_STATE_RUNNING" || job.Attempt == before.Attempt {
			return fmt.Errorf("attempt %s is %s (waiting for %q)", job.Attempt, job.State, job.WaitingFor)
		}
		return nil
	})
	run.AwaitOutput(time.Now(), 20*time.Second)
	t.Logf("%s: committed output again %s after the freeze", z.name, time.Since(at).Round(100*time.Millisecond))
	redeployed := c.Job(id).Attempt
	require.True(t, alive(worker), "the former worker is there to come back")
	if z.workerFirst {
		thaw(t, worker)
		time.Sleep(2 * time.Second) // it writes, and finds out that it is fenced
	}
	thaw(t, tm.PID())
	if z.worker && !z.workerFirst {
		time.Sleep(500 * time.Millisecond)
		_ = syscall.Kill(worker, syscall.SIGCONT) // its TaskManager may have killed it already
	}
	harness.AwaitDead(t, []int{worker}, 10*time.Second)
	c.WaitWhole(20 * time.Second)
	// It is fresh: it can be given the tasks of another one.
	run.AwaitOutput(time.Now(), 20*time.Second)
	require.Equal(t, redeployed, c.Job(id).Attempt, "the return disturbed the job: %v", c.Job(id).Failures)
	require.Empty(t, harness.Workers(tm))
	other, _ := busyTaskManager(t, c)
	require.NoError(t, other.Kill())
	harness.Eventually(t, 20*time.Second, "the returned TaskManager to run tasks", func() error {
		if len(harness.Workers(tm)) == 0 {
			return fmt.Errorf("workers: %v", c.WorkersByTaskManager())
		}
		return nil
	})
	require.NoError(t, other.Start())
	c.WaitWhole(20 * time.Second)
	c.WaitState(id, "RUNNING", 20*time.Second)
	run.AwaitOutput(time.Now(), 20*time.Second)
}

// freezeWithinTransactions freezes a worker while each of the job's two sinks has a transaction open: until it is fenced, the worker's
// holds back everything that is committed later.
func freezeWithinTransactions(t *testing.T, c *harness.Cluster, job string, worker int) {
	t.Helper()
	freeze(t, worker)
	harness.Eventually(t, 20*time.Second, "two open transactions", func() error {
		ids, err := c.Broker.TransactionalIDs(t.Context(), "")
		require.NoError(t, err)
		ongoing := 0
		for id, state := range ids {
			if strings.Contains(id, job) && state == "Ongoing" {
				ongoing++
			}
		}
		if ongoing < 2 {
			thaw(t, worker)
			time.Sleep(37 * time.Millisecond)
			require.NoError(t, syscall.Kill(worker, syscall.SIGSTOP))
			return fmt.Errorf("%d are open", ongoing)
		}
		return nil
	})
}

// A worker that stands still takes the whole job with it, since its output is missing in every checkpoint: its TaskManager kills it.
func TestFrozenWorkerIsKilledAndReplaced(t *testing.T) {
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})
	run := c.StartOrders(14*2000, 2000)
	id := c.Submit([]string{"-p", "2"}, run.Args()...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	_, worker := busyTaskManager(t, c)
	at := time.Now()
	freeze(t, worker)
	harness.AwaitDead(t, []int{worker}, 20*time.Second)
	dead := time.Since(at)
	run.AwaitOutput(time.Now(), 20*time.Second)
	t.Logf("killed %s after the freeze, committed output again after %s", dead.Round(100*time.Millisecond), time.Since(at).Round(100*time.Millisecond))
	run.RequireExactlyOnce(time.Minute)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, run.Topics.Totals)
}

// busyTaskManager returns a TaskManager that runs a worker, and the worker's process id.
func busyTaskManager(t *testing.T, c *harness.Cluster) (tm *localcluster.Process, worker int) {
	t.Helper()
	harness.Eventually(t, 20*time.Second, "a busy TaskManager", func() (err error) {
		worker, tm, err = c.WorkerOf()
		return err
	})
	return tm, worker
}

func freeze(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // a frozen one would outlive the test
}

func thaw(t *testing.T, pid int) {
	t.Helper()
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
}

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
