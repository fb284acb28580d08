package e2e_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
	"github.com/weir-stream/weir/test/harness/wallclock"
)

// standing is what a jump of the clock must leave alone.
type standing struct {
	Leader, Term string
	TaskManagers int
	State        string
	Attempt      string
	Restarts     string
	Workers      []int
}

func standingOf(t *testing.T, c *harness.Cluster, id string) standing {
	t.Helper()
	var members struct {
		Term    string `json:"term"`
		Members []struct {
			ID     string `json:"id"`
			Leader bool   `json:"leader"`
		} `json:"members"`
		TaskManagers []struct {
			ID string `json:"id"`
		} `json:"taskmanagers"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("members", "-o", "json")), &members))
	v := c.Job(id)
	s := standing{Term: members.Term, TaskManagers: len(members.TaskManagers), State: v.State, Attempt: v.Attempt, Restarts: v.Restarts}
	for _, m := range members.Members {
		if m.Leader {
			s.Leader = m.ID
		}
	}
	for _, tm := range c.TaskManagers() {
		s.Workers = append(s.Workers, harness.Workers(tm)...)
	}
	slices.Sort(s.Workers)
	return s
}

// checkpointView is a line of `weir checkpoints -o json`; 64-bit numbers are text in JSON.
type checkpointView struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Duration string `json:"durationMs"`
	Age      string `json:"ageMs"`
	Failure  string `json:"failure"`
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err, "what is shown is no sane number")
	return n
}

// absurd is more than any age or duration of a test that takes a minute and a half.
const absurd = 5 * time.Minute

// lastCompleted returns the newest completed checkpoint, having looked at every age that is shown.
func lastCompleted(t *testing.T, c *harness.Cluster, id string) int64 {
	t.Helper()
	sane := func(what, ms string) {
		n := number(t, ms)
		require.GreaterOrEqual(t, n, int64(0), what)
		require.Less(t, time.Duration(n)*time.Millisecond, absurd, what)
	}
	var list struct {
		Checkpoints []checkpointView `json:"checkpoints"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("checkpoints", id, "-o", "json")), &list))
	last := int64(0)
	for _, cp := range list.Checkpoints {
		require.Empty(t, cp.Failure)
		sane("duration of checkpoint "+cp.ID, cp.Duration)
		sane("age of checkpoint "+cp.ID, cp.Age)
		if cp.State == "completed" {
			last = max(last, number(t, cp.ID))
		}
	}
	var jobs struct {
		Jobs []struct {
			ID               string         `json:"id"`
			LastCheckpoint   checkpointView `json:"lastCheckpoint"`
			RecordsPerSecond float64        `json:"recordsPerSecond"`
		} `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("list", "-o", "json")), &jobs))
	for _, j := range jobs.Jobs {
		sane("age of the last checkpoint of "+j.ID, j.LastCheckpoint.Age)
		require.GreaterOrEqual(t, j.RecordsPerSecond, -1.0, "-1 is unknown")
		require.Less(t, j.RecordsPerSecond, 1e6)
	}
	require.NotRegexp(t, `\b\d+h\d`, c.MustWeir("explain", id), "nothing here has lasted for hours")
	return last
}

// The wall clocks of all machines, and then of one, jump by hours under load. The command line keeps the test's own clock, as a
// machine of its own.
func TestTheClockJumps(t *testing.T) {
	t.Parallel()
	bin, err := harness.BuildWithWallclock()
	require.NoError(t, err)
	clocks := map[string]*wallclock.Clock{}
	dir := t.TempDir()
	clock := func(name string, offset time.Duration) *wallclock.Clock {
		if clocks[name] == nil {
			clocks[name], err = wallclock.New(dir, name+".clock", offset)
			require.NoError(t, err)
		}
		return clocks[name]
	}
	common, lone := clock("common", 0), clock("tm2", 0)
	clock("tm3", -10*time.Minute)
	c := harness.StartBinaries(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2, Environment: func(id string) []string {
		if clocks[id] == nil {
			id = "common"
		}
		return []string{clocks[id].Env()}
	}}, kafkatest.Shared(t), bin)

	const interval = time.Second
	run := c.StartOrders(70_000, 2_000)
	id := c.Submit([]string{"-p", "4"}, run.Args("--interval", interval.String())...)
	c.WaitState(id, "RUNNING", 30*time.Second)
	run.AwaitOutput(time.Now(), 30*time.Second)
	before := standingOf(t, c, id)

	for _, jump := range []struct {
		name   string
		clock  *wallclock.Clock
		offset time.Duration
	}{
		{"all clocks two hours ahead", common, 2 * time.Hour},
		{"one clock two hours ahead as well", lone, 2 * time.Hour},
		{"all but that one two hours back", common, 0},
		{"that one four hours back", lone, -2 * time.Hour},
	} {
		former := lastCompleted(t, c, id)
		begin := time.Now()
		require.NoError(t, jump.clock.Set(jump.offset))
		harness.Eventually(t, 2*interval+3*time.Second, "checkpoints after the jump: "+jump.name, func() error {
			// The second one was triggered after the jump for sure.
			if last := lastCompleted(t, c, id); last < former+2 {
				return fmt.Errorf("the last completed one is %d, it was %d before", last, former)
			}
			return nil
		})
		t.Logf("%s: a second checkpoint after %s", jump.name, time.Since(begin).Round(10*time.Millisecond))
		run.AwaitOutput(time.Now(), 10*time.Second)
		// Silence of a TaskManager or a worker counts after four seconds, a leader's lease after half a one.
		for until := begin.Add(6 * time.Second); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
			require.Equal(t, before, standingOf(t, c, id), jump.name)
			lastCompleted(t, c, id)
		}
	}

	late, err := c.AddTaskManager()
	require.NoError(t, err)
	require.NoError(t, c.WaitReady(t.Context()), "a TaskManager whose clock is ten minutes off registers")
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	other := c.Submit([]string{"-p", "2", "--name", "late"}, "--shape", "pass", "--in", in, "--out", out)
	c.Produce(harness.Numbered(in, 1, 1, 1000)...)
	harness.RequireNumbers(t, c.AwaitCommitted(out, 1000, 30*time.Second), 1, 1000)
	require.NotEmpty(t, harness.Workers(late), "it runs the job")
	require.Equal(t, before.Attempt, c.Job(id).Attempt)

	// What recovery needs is still there: the binary and the files of the last checkpoint.
	binaries, err := filepath.Glob(filepath.Join(c.Dir, "storage", "*", "artifacts", "*"))
	require.NoError(t, err)
	require.Len(t, binaries, 1)
	require.NoError(t, late.Kill())
	harness.Eventually(t, 20*time.Second, "the job to notice", func() error {
		if v := c.Job(other); v.Restarts == "" {
			return fmt.Errorf("it is %s", v.State)
		}
		return nil
	})
	c.MustWeir("cancel", other)
	require.NoError(t, c.TaskManagers()[0].Kill())
	require.NoError(t, c.TaskManagers()[0].Start())
	run.RequireExactlyOnce(60 * time.Second)
}
