package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/test/harness"
)

// slotsOf is the number of slots that a job runs on.
func slotsOf(j harness.JobView) int {
	n := 0
	for _, t := range j.Tasks {
		n = max(n, t.Subtask+1)
	}
	return n
}

// A job is rescaled from 2 to 4 to 3 while it reads, and nodes are killed while that goes on. WEIR_RESCALE_ROUNDS says how often.
func TestRescaleUnderLoadWithKills(t *testing.T) {
	rounds := numberOr(t, "WEIR_RESCALE_ROUNDS", "1")
	const rate = 3000
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 3, Slots: 2})
	run := c.StartOrders(uint64(rounds)*rate*12, rate)
	id := c.Submit([]string{"-p", "2"}, run.Args()...)
	run.AwaitOutput(time.Now(), 30*time.Second)

	// Nobody dies at first.
	require.Equal(t, id+" 3\n", c.MustWeir("rescale", id, "3"))
	require.Equal(t, 3, slotsOf(c.WaitState(id, "RUNNING", 10*time.Second)))
	require.Equal(t, "0", orZero(c.Job(id).Restarts), "a rescale is no failure")
	r := c.Weir("rescale", id, "3")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, "nothing was changed")
	require.Equal(t, "2", c.Job(id).Attempt)

	for range rounds {
		for _, n := range []int{2, 4, 3} {
			rescaleWithKill(t, c, id, n)
			require.NoError(t, run.Problem())
		}
	}
	run.AwaitOutput(time.Now(), 30*time.Second)
	run.RequireExactlyOnce(2 * time.Minute)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, run.Topics.Totals)
}

// rescaleWithKill rescales a job while a node dies, again until it has succeeded.
func rescaleWithKill(t *testing.T, c *harness.Cluster, id string, n int) {
	t.Helper()
	nodes := c.TaskManagers()
	if rand.IntN(3) == 0 {
		nodes = c.JobManagers()
	}
	victim, pause := nodes[rand.IntN(len(nodes))], time.Duration(rand.IntN(800))*time.Millisecond
	killed := make(chan error, 1)
	go func() {
		time.Sleep(pause)
		killed <- victim.Kill()
	}()
	deadline := time.Now().Add(time.Minute)
	for begun := time.Now(); ; {
		r := c.Weir("rescale", id, strconv.Itoa(n))
		t.Logf("to %d, %s killed after %s: exit code %d after %s: %s", n, victim.ID, pause, r.Code, time.Since(begun).Round(time.Millisecond), r.Stderr)
		if r.Code == 0 {
			break
		}
		require.NotContains(t, []int{2, 3}, r.Code, r.Stderr)
		require.True(t, time.Now().Before(deadline), "no success within a minute")
		time.Sleep(200 * time.Millisecond)
	}
	require.NoError(t, <-killed)
	require.NoError(t, victim.Start())
	c.WaitWhole(30 * time.Second)
	harness.Eventually(t, 30*time.Second, "the job to run", func() error {
		if j := c.Job(id); j.State != "JOB_STATE_RUNNING" || slotsOf(j) != n {
			return fmt.Errorf("it is %s on %d slots, waiting for %q", j.State, slotsOf(j), j.WaitingFor)
		}
		return nil
	})
}

func TestRescaleIsRefused(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "2"}, "--shape", "keyed", "--in", in, "--out", out)
	c.WaitState(id, "RUNNING", 30*time.Second)
	for _, refused := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{id, "129"}, 1, "maximum parallelism 128"},
		{[]string{id, "5"}, 1, "needs 5 slots, 4 free on 2 TaskManagers"},
		{[]string{id, "0"}, 2, "whole number"},
		{[]string{id}, 2, "expected N"},
		{[]string{id, "--operator", "nonsense=2"}, 1, `no operator is called "nonsense"`},
		{[]string{"unknown", "2"}, 1, "not found"},
	} {
		r := c.Weir(append([]string{"rescale"}, refused.args...)...)
		require.Equal(t, refused.code, r.Code, "%v: %s", refused.args, r.Stderr)
		require.Contains(t, r.Stderr, refused.says, "%v", refused.args)
	}
	require.Equal(t, "1", c.Job(id).Attempt)
	require.Equal(t, 2, slotsOf(c.Job(id)))

	// One operator on its own, and back.
	require.Equal(t, id+" 4\n", c.MustWeir("rescale", id, "--operator", "pass=4"))
	require.Contains(t, c.MustWeir("show", id), "pass 4")
	require.Equal(t, id+" 3\n", c.MustWeir("rescale", id, "3", "--operator", "pass=0"))
	c.Produce(harness.Numbered(in, partitions, 1, 500)...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 500, 30*time.Second), 1, 500)

	// The same request again has the same outcome.
	require.Equal(t, id+" 2\n", c.MustWeir("rescale", id, "2", "--request-id", "r1"))
	attempt := c.Job(id).Attempt
	require.Equal(t, id+" 2\n", c.MustWeir("rescale", id, "2", "--request-id", "r1"))
	require.Equal(t, attempt, c.Job(id).Attempt)
	c.MustWeir("cancel", id)
	r := c.Weir("rescale", id, "2")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "canceled")
}

// A leader dies in the middle of a rescale; the next one goes on with it. docs/design/rescale.md has the table.
func TestLeaderDiesWhileItRescales(t *testing.T) {
	c := harness.StartWithFaultPoints(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "2"}, "--shape", "keyed", "--in", in, "--out", out)
	last := 0
	more := func() (first int) {
		first, last = last+1, last+500
		c.Produce(harness.Numbered(in, partitions, first, last)...)
		return first
	}
	more()
	c.AwaitCommitted(out, last, 30*time.Second)
	for i, point := range []faultpoint.Point{faultpoint.RescaleLogged, faultpoint.HandoverDue, faultpoint.HandoverStopped} {
		n := []int{4, 3, 2}[i]
		rescaled := make(chan harness.Result, 1)
		leader := leaderAt(t, c, point, 1, func() {
			more()
			go func() { rescaled <- c.Weir("rescale", id, strconv.Itoa(n)) }()
		})
		more()
		replace(t, c, leader, point)
		r := <-rescaled
		require.Zero(t, r.Code, "%s: %s", point, r.Stderr)
		require.Equal(t, fmt.Sprintf("%s %d\n", id, n), r.Stdout, "%s", point)
		require.Equal(t, n, slotsOf(c.WaitState(id, "RUNNING", 30*time.Second)), "%s", point)
		more()
	}
	harness.RequireNumbers(t, c.AwaitCommitted(out, last, 30*time.Second), 1, last)
	require.Equal(t, "4", c.Job(id).Attempt, "each rescale has begun one attempt")
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
}

// A job follows the slots as TaskManagers come and go, and makes room for another job.
func TestAutoParallelismFollowsTheSlots(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{
		JobManagers: 1, TaskManagers: 1, Slots: 2,
		ConfigureJobManager: func(cfg *jobmanager.Config) { cfg.AutoSettle = time.Second },
	})
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "auto"}, "--shape", "keyed", "--in", in, "--out", out)
	last := 0
	runsOn := func(slots int) {
		t.Helper()
		harness.Eventually(t, 30*time.Second, fmt.Sprintf("the job to run on %d slots", slots), func() error {
			if j := c.Job(id); j.State != "JOB_STATE_RUNNING" || slotsOf(j) != slots {
				return fmt.Errorf("it is %s on %d, waiting for %q", j.State, slotsOf(j), j.WaitingFor)
			}
			return nil
		})
		first := last + 1
		last += 300
		c.Produce(harness.Numbered(in, partitions, first, last)...)
	}
	runsOn(2)
	second, err := c.AddTaskManager()
	require.NoError(t, err)
	runsOn(4)
	require.Contains(t, c.MustWeir("list"), "4 (auto)")
	require.NoError(t, second.Kill())
	runsOn(2)
	require.NoError(t, second.Start())
	runsOn(4)

	other := c.Submit([]string{"-p", "3", "--name", "other"}, "--shape", "keyed", "--in", c.Topic(partitions, nil), "--out", c.Topic(partitions, nil))
	c.WaitState(other, "RUNNING", 30*time.Second)
	runsOn(1)
	c.MustWeir("cancel", other)
	runsOn(4)

	// A number ends it.
	require.Equal(t, id+" 1\n", c.MustWeir("rescale", id, "1"))
	time.Sleep(3 * time.Second)
	runsOn(1)
	c.MustWeir("rescale", id, "auto")
	runsOn(4)
	harness.RequireNumbers(t, c.AwaitCommitted(out, last, 30*time.Second), 1, last)
	c.MustWeir("cancel", id)
}
