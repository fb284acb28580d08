package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// durableCells are the points at which lost output is written again.
var durableCells = []cell{
	{faultpoint.Rewritten, worker, restarts, false},
	{faultpoint.ReplacementLogged, jobManager, restarts, false},
	{faultpoint.RewriteCommitDue, worker, restarts, true},
	{faultpoint.RewriteCommitted, worker, restarts, false},
}

// Everything dies when a checkpoint is complete and nothing of it is committed, and stays down until the broker has aborted all of it. With
// durable output each record is visible once and in order all the same, whoever dies while it is written again; without, the job stops
// and says what is lost.
func TestOutageLongerThanTheTransactionTimeout(t *testing.T) {
	broker := kafkatest.StartFor(t, kafkatest.Config{
		Properties: map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"},
	})
	c := harness.StartOnWithFaultPoints(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 6}, broker)
	jm, tm := c.JobManagers()[0], c.TaskManagers()[0]
	type outage struct {
		name, id, in, out string
		durable           bool
		kill              faultpoint.Point
		before            string // completed checkpoints
	}
	jobs := []*outage{
		{name: "lost"},
		{name: "kept", durable: true},
		{name: "confluent", durable: true},
		{name: "rewritten", durable: true, kill: faultpoint.Rewritten},
		{name: "logged", durable: true, kill: faultpoint.RewriteCommitDue},
		{name: "committed", durable: true, kill: faultpoint.RewriteCommitted},
	}
	for _, j := range jobs {
		j.in, j.out = c.Topic(2, nil), c.Topic(2, nil)
		c.Produce(harness.Numbered(j.in, 2, 0, 99)...)
		client := "native"
		if j.name == "confluent" {
			client = j.name
		}
		j.id = c.Submit([]string{"--name", j.name}, "--shape", "keyed", "--in", j.in, "--out", j.out, "--client", client,
			"--durable="+strconv.FormatBool(j.durable), "--transaction-timeout", "16s", "--interval", "300ms", "--checkpoint-timeout", "13s",
			"--tolerated-failures", "0", "--recovery-budget", "1s")
	}
	for _, j := range jobs {
		c.AwaitCommitted(j.out, 100, time.Minute)
		j.before = c.Job(j.id).Completed
	}
	c.Arm(tm, faultpoint.NoticeReceived, "delay:1h")
	for _, j := range jobs {
		c.Produce(harness.Numbered(j.in, 2, 100, 199)...)
	}
	for _, j := range jobs {
		harness.Eventually(t, time.Minute, "the completion of a checkpoint that nobody commits", func() error {
			if open, err := broker.OpenTransactions(t.Context(), j.out); err != nil || len(open) == 0 {
				return fmt.Errorf("%s: no transaction is open: %w", j.name, err)
			}
			if now := c.Job(j.id).Completed; now == j.before {
				return fmt.Errorf("%s: %s checkpoints, as before", j.name, now)
			}
			return nil
		})
	}
	workers := harness.Workers(tm)
	require.NoError(t, jm.Kill())
	require.NoError(t, tm.Kill())
	harness.AwaitDead(t, workers, 20*time.Second)
	c.Disarm(tm, faultpoint.NoticeReceived)
	for _, j := range jobs {
		require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), j.out))
		harness.RequireNumbers(t, c.Committed(j.out), 0, 99)
		if j.kill != "" {
			c.Arm(tm, j.kill, "kill,job="+j.name)
		}
	}
	c.Arm(jm, faultpoint.ReplacementLogged, "kill")
	require.NoError(t, jm.Start())
	require.NoError(t, tm.Start())
	c.AwaitFired(jm, faultpoint.ReplacementLogged, time.Minute)
	_ = jm.Wait() // it was killed
	require.NoError(t, jm.Start())

	for _, j := range jobs {
		if !j.durable {
			failed := c.WaitState(j.id, "FAILED", time.Minute)
			require.Contains(t, failed.Failures[len(failed.Failures)-1].Message, "aborted after it was prepared")
			harness.RequireNumbers(t, c.Committed(j.out), 0, 99)
			continue
		}
		records := c.AwaitCommitted(j.out, 200, 90*time.Second)
		harness.RequireNumbers(t, records, 0, 199)
		requireOrder(t, records)
		if j.kill == "" || c.Fired(tm, j.kill) {
			continue
		}
		// Then the leader has died with its entry in the log, perhaps among others that came together, and the next attempt has committed
		// by the entry, without writing anything again.
		require.NotEqual(t, "rewritten", j.name, "it dies before there is an entry")
		require.Equal(t, 1, attemptsThatWroteAgain(t, c, j.id), "nobody died in %s although an attempt came to %s", j.name, j.kill)
	}
	for _, j := range jobs[1:] {
		c.Produce(harness.Numbered(j.in, 2, 200, 219)...)
		harness.RequireNumbers(t, c.AwaitCommitted(j.out, 220, time.Minute), 0, 219)
		c.MustWeir("cancel", j.id)
		c.WaitState(j.id, "CANCELED", time.Minute)
		require.NoError(t, broker.WaitNoOpenTransactions(t.Context(), j.out))
	}
}

// attemptsThatWroteAgain returns how many attempts of a job say that they wrote lost output again.
func attemptsThatWroteAgain(t *testing.T, c *harness.Cluster, job string) (n int) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.Dir, "tm*", "logs", job, "*.log"))
	require.NoError(t, err)
	require.NotEmpty(t, logs)
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		if strings.Contains(string(text), "is written again from what is kept") {
			n++
		}
	}
	return n
}

// requireOrder checks that numbers with one key come in their order.
func requireOrder(t *testing.T, records []*kgo.Record) {
	t.Helper()
	last := map[string]int{}
	for _, r := range records {
		n, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		key := string(r.Key)
		if before, seen := last[key]; seen {
			require.Greater(t, n, before, "key %s", key)
		}
		last[key] = n
	}
}
