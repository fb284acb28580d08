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

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// How many transactional ids a subtask of a sink may need: with checkpoints one second apart, and with such that overtake commits.
const (
	idsPerSubtask      = 4
	hastyIDsPerSubtask = 6
)

// A broker forgets an id that nobody has used for a while. The job that uses it next goes on, whichever client it has.
func TestTransactionalIDsExpire(t *testing.T) {
	t.Parallel()
	const expiry = 3 * time.Second
	broker := kafkatest.StartFor(t, kafkatest.Config{Properties: map[string]string{
		"transactional.id.expiration.ms":                             strconv.FormatInt(expiry.Milliseconds(), 10),
		"transaction.remove.expired.transaction.cleanup.interval.ms": "500",
	}})
	c := harness.StartWith(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2}, broker)
	type pipe struct{ id, in, out string }
	jobs := map[string]pipe{}
	for _, client := range []string{"native", "confluent"} {
		in, out := c.Topic(1, nil), c.Topic(1, nil)
		id := c.Submit([]string{"--name", client}, "--shape", "pass", "--in", in, "--out", out, "--client", client, "--interval", "500ms")
		jobs[client] = pipe{id, in, out}
	}
	const rounds, n = 3, 100
	for round := range rounds {
		for client, j := range jobs {
			c.WaitState(j.id, "RUNNING", 30*time.Second)
			c.Produce(harness.Numbered(j.in, 1, round*n+1, (round+1)*n)...)
			harness.RequireNumbers(t, c.AwaitCommitted(j.out, (round+1)*n, 40*time.Second), 1, (round+1)*n)
			v := c.Job(j.id)
			require.Equal(t, "JOB_STATE_RUNNING", v.State)
			t.Logf("%s: round %d, attempt %s, restarts %s", client, round, v.Attempt, orZero(v.Restarts))
		}
		if round == rounds-1 {
			break
		}
		harness.Eventually(t, 10*expiry, "the ids to be forgotten", func() error {
			ids, err := broker.TransactionalIDs(t.Context(), "")
			if err == nil && len(ids) > 0 {
				err = fmt.Errorf("known are %v", ids)
			}
			return err
		})
	}
	for _, j := range jobs {
		restarts, err := strconv.Atoi(orZero(c.Job(j.id).Restarts))
		require.NoError(t, err)
		// Each round may find the ids forgotten, the first one too where the job took long to start.
		require.LessOrEqual(t, restarts, rounds, "restarts without end")
		requireCanceled(t, c, j.id, j.out)
	}
}

// footprint is what a job's clients take.
type footprint struct {
	descriptors, threads int
	resident             int // kB
	goroutines           int // of jobs with --goroutines
}

// warmUp is how long memory may take to find its level.
const warmUp = 2 * time.Minute

// Ids, connections and threads are as many after a hundred checkpoints as after ten. WEIR_IDS_DURATION is how long the test watches; from
// ten minutes on memory is looked at too.
func TestClientsAndIDsStayFew(t *testing.T) {
	t.Parallel()
	span, err := time.ParseDuration(envOr("WEIR_IDS_DURATION", "8s"))
	require.NoError(t, err)
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 4})
	const parallelism = 2
	long := span >= 10*time.Minute
	most, intervals := hastyIDsPerSubtask, map[string]string{"native": "200ms", "confluent": "1s"}
	if long {
		most, intervals["native"] = idsPerSubtask, "1s"
	}
	type job struct {
		id, in, out string
		before      footprint
	}
	jobs := map[string]*job{}
	for client, interval := range intervals {
		j := &job{in: c.Topic(2, nil), out: c.Topic(2, nil)}
		j.id = c.Submit([]string{"-p", strconv.Itoa(parallelism), "--name", client}, "--shape", "pass", "--in", j.in, "--out", j.out,
			"--client", client, "--interval", interval)
		c.WaitState(j.id, "RUNNING", 30*time.Second)
		startFeedOf(t, c, j.in, 1, 50*time.Millisecond)
		jobs[client] = j
	}
	for _, j := range jobs {
		harness.Eventually(t, 40*time.Second, "ten checkpoints", func() error {
			if n := completed(t, c, j.id); n < 10 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
	}
	if long {
		time.Sleep(warmUp)
	}
	for _, j := range jobs {
		j.before = footprintOf(t, c, j.out)
	}
	for watched := time.Duration(0); watched < span; watched += time.Minute {
		time.Sleep(min(time.Minute, span-watched))
		for client, j := range jobs {
			t.Logf("%s: %+v", client, footprintOf(t, c, j.out))
		}
	}
	for client, j := range jobs {
		after, checkpoints := footprintOf(t, c, j.out), completed(t, c, j.id)
		known := len(idsOf(t, c, j.id))
		t.Logf("%s: %d checkpoints, %d ids, first %+v, then %+v", client, checkpoints, known, j.before, after)
		require.Equal(t, "0", orZero(c.Job(j.id).Restarts))
		require.LessOrEqual(t, known, parallelism*most)
		// A client that is being replaced has its successor beside it for a moment.
		require.LessOrEqual(t, after.descriptors, j.before.descriptors+10)
		require.LessOrEqual(t, after.threads, j.before.threads*6/5+10)
		if long {
			require.LessOrEqual(t, after.resident, j.before.resident*11/10)
		}
		requireCanceled(t, c, j.id, j.out)
	}
}

// footprintOf adds up the workers of the job that writes to a topic: the smallest of a few looks, since clients come and go.
func footprintOf(t *testing.T, c *harness.Cluster, out string) footprint {
	t.Helper()
	look := func() (f footprint) {
		pids := c.WorkersOf(out)
		require.NotEmpty(t, pids)
		for _, pid := range pids {
			for dir, n := range map[string]*int{"fd": &f.descriptors, "task": &f.threads} {
				entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/%s", pid, dir))
				require.NoError(t, err)
				*n += len(entries)
			}
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
			require.NoError(t, err)
			_, rest, _ := strings.Cut(string(status), "VmRSS:")
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			require.NoError(t, err)
			f.resident += kb
			if n, err := os.ReadFile(filepath.Join(goroutinesOf(c), strconv.Itoa(pid))); err == nil {
				n, _ := strconv.Atoi(string(n)) // it is being written in this moment
				f.goroutines += n
			}
		}
		return f
	}
	least := look()
	for range 10 {
		time.Sleep(50 * time.Millisecond)
		f := look()
		least = footprint{
			min(least.descriptors, f.descriptors), min(least.threads, f.threads), min(least.resident, f.resident), least.goroutines,
		}
		if f.goroutines > 0 && (least.goroutines == 0 || f.goroutines < least.goroutines) {
			least.goroutines = f.goroutines
		}
	}
	return least
}

// goroutinesOf is the directory for the flag --goroutines of the cluster's jobs.
func goroutinesOf(c *harness.Cluster) string { return c.Dir }
