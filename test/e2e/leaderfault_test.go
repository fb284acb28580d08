package e2e_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/faultpoint"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// underway is how long what a leader has sent may take to arrive, before it is killed.
const underway = 300 * time.Millisecond

// A leader dies with a protocol half done, exactly there; the next one finishes or undoes it. docs/design/leader-change.md has the table.
func TestLeaderDiesHalfWay(t *testing.T) {
	c := harness.StartWithFaultPoints(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 4})
	t.Run("through a checkpoint", func(t *testing.T) { diesInCheckpoints(t, c.For(t)) })
	for _, d := range deployments {
		t.Run("through a deployment, at "+string(d.point), func(t *testing.T) { diesInDeployment(t, c.For(t), d) })
	}
	for _, p := range []faultpoint.Point{faultpoint.EndLogged, faultpoint.ResultDue} {
		t.Run("through a cancel, at "+string(p), func(t *testing.T) { diesInCancel(t, c.For(t), p) })
	}
	t.Run("through a savepoint that nobody asks for again", func(t *testing.T) { diesInSavepoint(t, c.For(t)) })
	t.Run("through a stop, at "+string(faultpoint.CompletionLogged), func(t *testing.T) { diesInLastCheckpoint(t, c.For(t)) })
	for _, p := range []faultpoint.Point{faultpoint.ExportDue, faultpoint.SavepointRecorded} {
		t.Run("through a stop with savepoint, at "+string(p), func(t *testing.T) { diesInStop(t, c.For(t), p) })
	}
}

// leaderAt makes the leader hang at a point, the n-th time, does what brings it there, and returns the leader when it is there and what
// it has sent has arrived.
func leaderAt(t *testing.T, c *harness.Cluster, point faultpoint.Point, n int, bring func()) *localcluster.Process {
	t.Helper()
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	c.Arm(leader, point, fmt.Sprintf("hang@%d", n))
	if bring != nil {
		bring()
	}
	c.AwaitFired(leader, point, 20*time.Second)
	time.Sleep(underway)
	return leader
}

// replace kills a leader, waits for the next one, and starts the killed one again.
func replace(t *testing.T, c *harness.Cluster, leader *localcluster.Process, point faultpoint.Point) {
	t.Helper()
	require.NoError(t, leader.Kill())
	c.Disarm(leader, point)
	_, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	require.NoError(t, leader.Start())
	c.WaitWhole(30 * time.Second)
}

func diesInCheckpoints(t *testing.T, c *harness.Cluster) {
	u := startUndisturbed(t, c, 18*3000, 3000, 4)
	require.Len(t, u.workers, 2, "TaskManagers with tasks")
	// inProgress is the checkpoint that the leader is at: ids are used in order.
	inProgress := func() uint64 { return u.watch.Last().ID + 1 }
	for _, at := range []struct {
		name  string
		point faultpoint.Point
		n     int
	}{
		{"trigger sent to one worker of two", faultpoint.TriggerSent, 1},
		{"trigger sent to all workers", faultpoint.TriggerSent, 2},
		{"all acknowledgements reached only the leader", faultpoint.AllAcknowledged, 1},
	} {
		leader := leaderAt(t, c, at.point, at.n, nil)
		lost, killed := inProgress(), time.Now()
		replace(t, c, leader, at.point)
		cp := u.awaitCheckpoint(t, killed)
		require.Greater(t, cp.ID, lost, at.name)
		for _, done := range u.watch.All() {
			require.NotEqual(t, lost, done.ID, "%s: a checkpoint of the former leader completed", at.name)
		}
		u.require(t)
		t.Logf("%s: %d dropped, %d complete %s after the kill", at.name, lost, cp.ID, cp.At.Sub(killed).Round(time.Millisecond))
	}

	// The completion is in the log, and no worker knows. The next leader tells them before anything else: it is stopped before its own
	// first completion, so that the output which becomes visible is that of the former leader's checkpoint.
	leader := leaderAt(t, c, faultpoint.CompletionLogged, 1, nil)
	logged := inProgress()
	before, _ := u.run.Committed()
	next := successorAt(t, c, leader, faultpoint.AllAcknowledged)
	harness.Eventually(t, 10*time.Second, "the output of the checkpoint that is only in the log", func() error {
		if now, _ := u.run.Committed(); now == before {
			return fmt.Errorf("%d orders are committed, as before", now)
		}
		return nil
	})
	c.WaitWhole(30 * time.Second)

	// The next leader dies while it takes over, and so does the one after it.
	third := successorAt(t, c, next, faultpoint.TakenOver)
	c.WaitWhole(30 * time.Second)
	killed := time.Now()
	replace(t, c, third, faultpoint.TakenOver)
	require.Greater(t, u.awaitCheckpoint(t, killed).ID, logged)
	u.require(t)
	u.end(t)
}

// successorAt kills a leader, starts it again, and returns the next leader when that hangs at a point.
func successorAt(t *testing.T, c *harness.Cluster, leader *localcluster.Process, point faultpoint.Point) *localcluster.Process {
	t.Helper()
	for _, p := range c.JobManagers() {
		c.Arm(p, point, "hang")
	}
	require.NoError(t, leader.Kill())
	next := c.AwaitAnyFired(c.JobManagers(), point, 20*time.Second)
	for _, p := range c.JobManagers() {
		c.Disarm(p, point)
	}
	require.NoError(t, leader.Start())
	return next
}

// deployment is a point of a deployment. Once the log says that the attempt goes, the next leader goes on with it; before, it may begin
// another one.
type deployment struct {
	point faultpoint.Point
	goes  bool
}

var deployments = []deployment{
	{faultpoint.AttemptLogged, false},
	{faultpoint.WorkerOrdered, false},
	{faultpoint.StartLogged, true},
	{faultpoint.StartSent, true},
}

func diesInDeployment(t *testing.T, c *harness.Cluster, d deployment) {
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	c.Produce(harness.Numbered(in, partitions, 1, 1000)...)
	submitted := make(chan harness.Result, 1)
	leader := leaderAt(t, c, d.point, 1, func() {
		go func() {
			submitted <- c.Weir("submit", "-p", "4", "--name", in, c.Binaries.Job, "--", "--brokers", c.Broker.Addr(), "--shape", "keyed", "--in", in, "--out", out)
		}()
	})
	workers := c.WorkersByTaskManager()
	replace(t, c, leader, d.point)
	r := <-submitted
	require.Zero(t, r.Code, "weir submit: %s%s", r.Stdout, r.Stderr)
	id := firstLine(r.Stdout)
	job := c.WaitState(id, "RUNNING", 30*time.Second)
	if d.goes {
		require.Equal(t, "1", job.Attempt)
		require.Equal(t, "0", orZero(job.Restarts))
		require.Equal(t, workers, c.WorkersByTaskManager(), "worker processes")
	}
	for tm, pids := range c.WorkersByTaskManager() {
		require.Len(t, pids, 1, "workers on %s", tm)
	}
	c.AwaitCommitted(out, 1000, 30*time.Second)
	c.Produce(harness.Numbered(in, partitions, 1001, 1500)...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 1500, 30*time.Second), 1, 1500)
	requireOneLiveJob(t, c, id, in)
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
}

func diesInCancel(t *testing.T, c *harness.Cluster, point faultpoint.Point) {
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "4", "--name", in}, "--shape", "keyed", "--in", in, "--out", out)
	c.Produce(harness.Numbered(in, partitions, 1, 1000)...)
	c.AwaitCommitted(out, 1000, 30*time.Second)
	canceled := make(chan harness.Result, 1)
	leader := leaderAt(t, c, point, 1, func() {
		c.Produce(harness.Numbered(in, partitions, 1001, 2000)...) // transactions are open, or prepared
		go func() { canceled <- c.Weir("cancel", id) }()
	})
	replace(t, c, leader, point)
	r := <-canceled
	require.Zero(t, r.Code, "weir cancel: %s%s", r.Stdout, r.Stderr)
	job := c.Job(id)
	require.Equal(t, "JOB_STATE_CANCELED", job.State)
	require.Empty(t, job.Unsettled)
	requireNothingLeft(t, c, out)
	seen, err := c.Broker.ReadNumbers(t.Context(), out)
	require.NoError(t, err)
	for n, times := range seen {
		require.Equal(t, 1, times, "record %d", n)
	}
	require.GreaterOrEqual(t, len(seen), 1000)
}

func diesInStop(t *testing.T, c *harness.Cluster, point faultpoint.Point) {
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	dir := "file://" + t.TempDir()
	args := []string{"--shape", "count", "--in", in, "--out", out}
	id := c.Submit([]string{"-p", "4", "--name", in}, args...)
	c.Produce(harness.Numbered(in, partitions, 1, 1000)...)
	c.AwaitCommitted(out, 1000, 30*time.Second)
	attempt, workers := c.Job(id).Attempt, c.WorkersByTaskManager()
	stopped := make(chan harness.Result, 1)
	leader := leaderAt(t, c, point, 1, func() {
		go func() { stopped <- c.Weir("stop", id, "--savepoint", dir) }()
	})
	require.Equal(t, workers, c.WorkersByTaskManager())
	replace(t, c, leader, point)
	r := <-stopped
	require.Zero(t, r.Code, "weir stop: %s%s", r.Stdout, r.Stderr)
	job := c.Job(id)
	require.Equal(t, "JOB_STATE_STOPPED", job.State)
	require.Equal(t, "0", orZero(job.Restarts))
	if point == faultpoint.ExportDue {
		require.Equal(t, attempt, job.Attempt, "the attempt that takes the savepoint")
	}
	require.NotEmpty(t, job.Savepoint)
	require.Equal(t, job.Savepoint, firstLine(r.Stdout))
	requireNothingLeft(t, c, out)

	// The savepoint is good: counts go on where they were.
	c.Produce(harness.Numbered(in, partitions, 1001, 2000)...)
	next := c.Submit([]string{"-p", "4", "--name", in, "--from", job.Savepoint}, args...)
	counts := map[string]uint64{}
	for _, rec := range c.AwaitCommitted(out, 2000, 30*time.Second) {
		counts[string(rec.Key)] = max(counts[string(rec.Key)], binary.BigEndian.Uint64(rec.Value))
	}
	require.Len(t, c.Committed(out), 2000)
	for key, n := range counts {
		require.Equal(t, uint64(20), n, "records of key %s", key)
	}
	c.MustWeir("cancel", next)
	requireNothingLeft(t, c, out)
}

// Some sources have sent the barrier of a savepoint, and tasks that got it hold back what follows it. The client has died with the
// leader and the job takes no checkpoints of its own, so only the next leader's abort sets the records free.
func diesInSavepoint(t *testing.T, c *harness.Cluster) {
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "4", "--name", in}, "--shape", "keyed", "--checkpoints=false", "--in", in, "--out", out)
	c.Produce(harness.Numbered(in, partitions, 1, 100)...)
	c.AwaitCommitted(out, 100, 20*time.Second)
	workers := c.WorkersByTaskManager()
	require.Len(t, workers, 2, "TaskManagers with tasks")
	client := exec.Command(c.Binaries.Weir, "savepoint", id, "--dir", "file://"+t.TempDir())
	client.Env = append(os.Environ(), "WEIR_JOBMANAGER="+c.Addresses())
	leader := leaderAt(t, c, faultpoint.TriggerSent, 1, func() { require.NoError(t, client.Start()) })
	require.NoError(t, client.Process.Kill())
	_ = client.Wait() // killed
	c.Produce(harness.Numbered(in, partitions, 101, 1100)...)
	time.Sleep(time.Second)
	require.Less(t, len(c.Committed(out)), 1100, "nothing is held back, so nothing can be set free")
	replace(t, c, leader, faultpoint.TriggerSent)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 1100, 20*time.Second), 1, 1100)
	require.Equal(t, workers, c.WorkersByTaskManager(), "worker processes")
	require.Equal(t, "0", orZero(c.Job(id).Restarts))
	c.MustWeir("cancel", id)
	requireNothingLeft(t, c, out)
}

// The only checkpoint that covers any output is the last one, and its transactions are prepared when the leader dies: all that becomes
// visible was committed by the next leader.
func diesInLastCheckpoint(t *testing.T, c *harness.Cluster) {
	in, out := c.Topic(partitions, nil), c.Topic(partitions, nil)
	id := c.Submit([]string{"-p", "4", "--name", in}, "--shape", "keyed", "--in", in, "--out", out, "--interval", "1m")
	harness.Eventually(t, 20*time.Second, "the first checkpoint", func() error {
		if completed(t, c, id) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	c.Produce(harness.Numbered(in, partitions, 1, 500)...)
	harness.Eventually(t, 20*time.Second, "output that is not committed", func() error {
		var n int64
		for _, end := range c.EndOffsets(out) {
			n += end
		}
		if n < 500 {
			return fmt.Errorf("%d records are written", n)
		}
		return nil
	})
	stopped := make(chan harness.Result, 1)
	leader := leaderAt(t, c, faultpoint.CompletionLogged, 1, func() {
		go func() { stopped <- c.Weir("stop", id) }()
	})
	require.Empty(t, c.Committed(out))
	replace(t, c, leader, faultpoint.CompletionLogged)
	r := <-stopped
	require.Zero(t, r.Code, "weir stop: %s%s", r.Stdout, r.Stderr)
	require.Equal(t, "JOB_STATE_STOPPED", c.Job(id).State)
	requireNothingLeft(t, c, out)
	harness.RequireNumbers(t, c.Committed(out), 1, 500)
}

// requireOneLiveJob checks that a submission that had to be repeated made one job.
func requireOneLiveJob(t *testing.T, c *harness.Cluster, id, name string) {
	t.Helper()
	var list struct {
		Jobs []struct {
			ID   string `json:"id"`
			Name string `json:"name"`
		} `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("list", "-o", "json")), &list))
	var ids []string
	for _, j := range list.Jobs {
		if j.Name == name {
			ids = append(ids, j.ID)
		}
	}
	require.Equal(t, []string{id}, ids)
}

// requireNothingLeft checks that no worker and no open transaction is left of a job.
func requireNothingLeft(t *testing.T, c *harness.Cluster, out string) {
	t.Helper()
	harness.Eventually(t, 10*time.Second, "the workers to be gone", func() error {
		if left := c.WorkersByTaskManager(); len(left) > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	open, err := c.Broker.OpenTransactions(t.Context(), out)
	require.NoError(t, err)
	require.Empty(t, open)
}

// A program without the tag has no fault points at all, so that nothing of a production process hangs on them: the name of none is in it.
func TestReleasesHaveNoFaultPoints(t *testing.T) {
	with, err := harness.BuildWithFaultPoints()
	require.NoError(t, err)
	without, err := harness.Build()
	require.NoError(t, err)
	names := append(allPoints(t), faultpoint.EnvDir)
	in := func(paths ...string) (found []string) {
		for _, path := range paths {
			program, err := os.ReadFile(path)
			require.NoError(t, err)
			for _, n := range names {
				if bytes.Contains(program, []byte(n)) {
					found = append(found, n)
				}
			}
		}
		slices.Sort(found)
		return slices.Compact(found)
	}
	slices.Sort(names)
	require.Equal(t, names, in(with.Weir, with.Job))
	require.Empty(t, in(without.Weir, without.Job))
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
