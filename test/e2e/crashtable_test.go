package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/taskmanager"
	"github.com/weir-stream/weir/test/harness"
)

const (
	// firedWithin bounds the wait for a process to come to a point.
	firedWithin = 30 * time.Second
	// recovered bounds the wait for the output of everything up to a death.
	recovered = 40 * time.Second
)

// crashTable is the long-lived job of the table.
type crashTable struct {
	*harness.Cluster
	run    *harness.NumberRun
	id     string
	verb   string // kill, freeze or error
	client string // Kafka client that writes
}

// A process dies at each point of the protocol, and nothing is lost or repeated. docs/design/exactly-once.md has the table.
//
// WEIR_CRASH_VERB=freeze lets processes stand still at the points until others have taken their place, and then go on; error lets the
// code meet an error. WEIR_CRASH_CLIENT=confluent writes with librdkafka.
func TestCrashTable(t *testing.T) {
	t.Parallel()
	c := crashTable{verb: envOr("WEIR_CRASH_VERB", "kill"), client: envOr("WEIR_CRASH_CLIENT", "native")}
	c.Cluster = harness.StartWithSharedFaultPoints(t, localcluster.Config{
		JobManagers: 3, TaskManagers: 3, Slots: 1,
		ConfigureJobManager: func(cfg *jobmanager.Config) {
			cfg.CancelDeadline = time.Second
			if c.verb == "freeze" {
				cfg.HeartbeatInterval, cfg.HeartbeatTimeout = 200*time.Millisecond, time.Second
			}
		},
		ConfigureTaskManager: func(cfg *taskmanager.Config) { cfg.CancelDeadline = time.Second },
	})
	c.run = harness.StartNumbers(t, c.Broker)
	c.run.Begin("the start")
	c.id = c.Submit([]string{"-p", "2"}, c.run.Args("--interval", "250ms", "--max-restarts", "100000", "--restart-delay", "1ms", "--client", c.client)...)
	c.WaitState(c.id, "RUNNING", 30*time.Second)
	c.run.Require(t, recovered)
	began, cells := time.Now(), 0
	for _, cell := range crashCells {
		if c.skips(cell) {
			continue
		}
		if !t.Run(cell.String(), func(t *testing.T) { c.do(t, cell) }) {
			t.FailNow() // what is missing now would be missing in every later cell
		}
		cells++
	}
	t.Logf("%d cells within %s", cells, time.Since(began).Round(time.Second))
	c.end(t)
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// skips reports whether a cell has no meaning for the verb.
func (c *crashTable) skips(cell cell) bool { return c.verb == "error" && !cell.fails }

// brings says what brings a process to the cell's point. librdkafka sends its requests unseen; a restore sends its own.
func (c *crashTable) brings(cell cell) when {
	if c.client == "confluent" && (cell.point == faultpoint.EndTxnSent || cell.point == faultpoint.EndTxnAnswered) {
		return restarts
	}
	return cell.when
}

func (c *crashTable) do(t *testing.T, cell cell) {
	on := c.For(t)
	on.WaitWhole(30 * time.Second)
	c.run.Begin(cell.String())
	began := time.Now()
	role := cell.role
	if role == leaderAndWorkers {
		role = jobManager
	}
	action := map[string]string{"kill": "kill", "freeze": "stop", "error": "error"}[c.verb]
	// What is sent shall leave before the sender dies, and a leader's workers shall have got it before they die with it.
	lets := c.verb == "kill" && (cell.leaves() || cell.role == leaderAndWorkers)
	if lets {
		action = "hang"
	}
	on.ArmRole(role, cell.point, action)
	defer on.DisarmRole(role, cell.point)
	pid := c.await(t, on, cell, role)
	fired := time.Since(began)
	if lets {
		time.Sleep(underway)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	if cell.role == leaderAndWorkers {
		for _, pids := range c.WorkersByTaskManager() {
			for _, pid := range pids {
				require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			}
		}
	}
	switch c.verb {
	case "kill":
		c.replace(t, role, pid)
		c.run.Require(t, recovered)
	case "freeze":
		thaw := c.freeze(t, role, pid)
		c.run.Require(t, recovered)
		thaw()
		c.run.Require(t, recovered)
	case "error":
		c.run.Require(t, recovered)
	}
	t.Logf("at the point after %s, all output %s later", fired.Round(time.Millisecond), (time.Since(began) - fired).Round(time.Millisecond))
}

// await brings a process to the cell's point and returns its id. On a slow machine a leader may be replaced by chance just then, so that
// what was brought about is not met any more; it is done again.
func (c *crashTable) await(t *testing.T, on *harness.Cluster, cell cell, role localcluster.Role) int {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		after := c.bring(t, on, c.brings(cell))
		t.Cleanup(after)
		pid, err := on.AwaitRoleFired(role, cell.point, firedWithin/tries)
		if err == nil {
			return pid
		}
		require.Less(t, try, tries, "%v", err)
	}
}

// bring does what makes some process come to a point, and returns what to do in the end.
func (c *crashTable) bring(t *testing.T, on *harness.Cluster, by when) (after func()) {
	switch by {
	case always:
	case restarts:
		killWorker(t, on)
	case takeovers:
		leader, err := c.WaitLeader(t.Context())
		require.NoError(t, err)
		require.NoError(t, leader.Kill())
		require.NoError(t, leader.Start())
	case savepoints:
		// Its outcome is open: the leader that it is asked of dies.
		savepoint := exec.Command(c.Binaries.Weir, "savepoint", c.id, "--dir", "file://"+t.TempDir())
		savepoint.Env = append(os.Environ(), c.Environ()...)
		require.NoError(t, savepoint.Start())
		return func() { _ = savepoint.Wait() }
	}
	return func() {}
}

// replace waits until a process is dead, and starts it again unless its TaskManager does.
func (c *crashTable) replace(t *testing.T, role localcluster.Role, pid int) {
	t.Helper()
	if role == worker {
		harness.AwaitDead(t, []int{pid}, 10*time.Second)
		return
	}
	p, err := c.Node(pid)
	require.NoError(t, err)
	_ = p.Wait() // killed
	require.NoError(t, p.Start())
}

// freeze keeps a process that stands still at its point from being killed by its TaskManager, and returns what lets it go on.
func (c *crashTable) freeze(t *testing.T, role localcluster.Role, pid int) (thaw func()) {
	t.Helper()
	frozen := []int{pid}
	if role == worker {
		for _, tm := range c.TaskManagers() {
			for _, w := range harness.Workers(tm) {
				if w == pid {
					frozen = append(frozen, tm.PID())
					require.NoError(t, tm.Signal(syscall.SIGSTOP))
				}
			}
		}
		require.Len(t, frozen, 2, "the TaskManager of worker %d", pid)
	}
	return func() {
		for _, pid := range frozen {
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		}
	}
}

// end checks that a job with all that behind it stops and leaves nothing open.
func (c *crashTable) end(t *testing.T) {
	c.WaitWhole(30 * time.Second)
	c.run.Require(t, recovered)
	c.MustWeir("stop", c.id)
	job := c.Job(c.id)
	require.Equal(t, "JOB_STATE_STOPPED", job.State)
	require.Empty(t, job.Unsettled)
	harness.Eventually(t, 10*time.Second, "the workers to be gone", func() error {
		if left := c.WorkersByTaskManager(); len(left) > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	// Tests that run at the same time share the broker, so it is asked for this job's transactions only.
	require.NotEmpty(t, idsOf(t, c.Cluster, c.id))
	for _, out := range []string{c.run.Out, c.run.Sums} {
		requireNoneOpen(t, c.Cluster, c.id, out)
	}
}
