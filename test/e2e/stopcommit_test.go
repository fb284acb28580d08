package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/test/harness"
)

// stopping is a job whose stop has its checkpoint, of which nothing is committed.
type stopping struct {
	name, id, in, out string
	savepoint         bool
	txn               string // that the checkpoint lists
	records           int    // that it has
	stop              chan harness.Result
}

// The last checkpoint of a stop is complete and its commit fails: because the transaction is lost, or because the broker is away.
// docs/design/savepoints.md says what becomes of the job and of the stop.
func TestStopWhoseLastCommitFails(t *testing.T) {
	t.Parallel()
	broker := kafkatest.StartFor(t, kafkatest.Config{})
	c := harness.StartOnWithFaultPoints(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 5,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.RecoveryBudget = 5 * time.Second },
	}, broker)
	tm := c.TaskManagers()[0]
	dir := "file://" + filepath.Join(c.Dir, "savepoints")
	args := func(j *stopping) []string {
		return append([]string{"--shape", "pass", "--in", j.in, "--out", j.out, "--recovery-budget", "1s"}, seldom...)
	}
	begin := func(name string, savepoint bool) *stopping {
		t.Helper()
		j := &stopping{name: name, savepoint: savepoint, in: c.Topic(1, nil), out: c.Topic(1, nil), stop: make(chan harness.Result, 1)}
		j.id = c.Submit([]string{"--name", name}, args(j)...)
		c.WaitState(j.id, "RUNNING", 30*time.Second)
		c.Produce(harness.Numbered(j.in, 1, 1, 100)...)
		harness.Eventually(t, 20*time.Second, "an open transaction", func() error {
			if len(openOf(t, c, j.id)) == 0 {
				return fmt.Errorf("there is none")
			}
			return nil
		})
		c.Arm(tm, faultpoint.CommitDue, "hang,job="+name)
		stop := []string{"stop", j.id}
		if savepoint {
			stop = append(stop, "--savepoint", dir)
		}
		go func() { j.stop <- c.Weir(stop...) }()
		c.AwaitFired(tm, faultpoint.CommitDue, 30*time.Second)
		j.txn, j.records = prepared(t, c, j.id)
		require.Positive(t, j.records)
		return j
	}
	workersDie := func(j *stopping) {
		t.Helper()
		for _, pid := range c.WorkersOf(j.out) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
	// again goes on where the job has ended: the output has the numbers from first on then.
	again := func(j *stopping, first int, more ...string) {
		t.Helper()
		id := c.Submit(append([]string{"--name", j.name + "-again", "--from", j.id + "@last"}, more...), args(j)...)
		c.Produce(harness.Numbered(j.in, 1, 101, 110)...)
		c.WaitState(id, "RUNNING", 30*time.Second)
		c.MustWeir("stop", id)
		harness.RequireNumbers(t, c.Committed(j.out), first, 110)
	}

	for _, savepoint := range []bool{false, true} {
		j := begin(fmt.Sprintf("lost-%t", savepoint), savepoint)
		abortBehind(t, c, j.txn)
		workersDie(j)
		r := <-j.stop
		require.Equal(t, 1, r.Code, "%s%s", r.Stdout, r.Stderr)
		v := c.Job(j.id)
		shown := c.MustWeir("show", j.id)
		require.Contains(t, shown, fmt.Sprintf("transaction %s  %d records: %s/0 (%d), lost;", j.txn, j.records, j.out, j.records))
		require.Contains(t, shown, "its control markers say so")
		if savepoint {
			require.Equal(t, "JOB_STATE_FAILED", v.State)
			require.Empty(t, v.Savepoint)
			require.Contains(t, r.Stderr, "was not stopped but is FAILED")
		} else {
			require.Equal(t, "JOB_STATE_STOPPED", v.State)
			require.Contains(t, r.Stderr, fmt.Sprintf("is lost: transactions 1, records %d", j.records))
		}
		copies, err := filepath.Glob(filepath.Join(c.Dir, "savepoints", "*"))
		require.NoError(t, err)
		require.Empty(t, copies)
		require.Empty(t, openOf(t, c, j.id))
		refusedWith(t, c.Weir(append([]string{"submit", "--from", j.id + "@last", c.Binaries.Job, "--", "--brokers", c.Broker.Addr()}, args(j)...)...), "is lost", "--accept-loss")
		again(j, 101, "--accept-loss")
	}

	// The broker is away for longer than a job that ends is settled. The job with a savepoint is not at its end before it is committed.
	plain, saved := begin("away-plain", false), begin("away-saved", true)
	require.NoError(t, broker.Kill())
	workersDie(plain)
	workersDie(saved)
	r := <-plain.stop
	require.NotZero(t, r.Code)
	require.Contains(t, r.Stderr, "unsettled")
	require.Equal(t, "JOB_STATE_STOPPED", c.Job(plain.id).State)
	select {
	case r := <-saved.stop:
		require.Fail(t, "the stop has an answer before anything is committed", "%s%s", r.Stdout, r.Stderr)
	default:
	}
	require.NoError(t, broker.Restart(t.Context()))
	r = <-saved.stop
	require.Zero(t, r.Code, "%s%s", r.Stdout, r.Stderr)
	v := c.Job(saved.id)
	require.Equal(t, "JOB_STATE_STOPPED", v.State)
	require.Equal(t, v.Savepoint, strings.TrimSpace(r.Stdout))
	harness.Eventually(t, 60*time.Second, "the job without a savepoint to be settled", func() error {
		if u := c.Job(plain.id).Unsettled; u != "" {
			return fmt.Errorf("%s", u)
		}
		return nil
	})
	for _, j := range []*stopping{plain, saved} {
		harness.RequireNumbers(t, c.Committed(j.out), 1, 100)
		again(j, 1)
		requireNoneOpen(t, c, j.id, j.out)
	}
}
