package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// The leader's packets are dropped both ways, and it is not told. Whoever is on its side is refused, and nothing that it has begun or is
// asked for takes effect, neither then nor after the healing.
func TestIsolatedLeaderChangesNothing(t *testing.T) {
	network := harness.NewNetwork(t, 3)
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 2, Slots: 2, ConfigureJobManager: network.Configure})
	network.Of(c)
	u := startUndisturbed(t, c, 20*3000, 3000, 2)
	old, err := c.WaitLeader(t.Context())
	require.NoError(t, err)

	last, at := u.watch.Last(), time.Now()
	network.Isolate(old)
	// At once, while it still takes itself for the leader.
	cancel := atNode(t, network.Direct(old), "cancel", u.id, "--patience", "1s", "--wait", "5s")
	require.NotZero(t, cancel.Code, "the isolated leader canceled a job: %s%s", cancel.Stdout, cancel.Stderr)
	next := awaitOtherLeader(t, c, old)
	cp := u.awaitCheckpoint(t, at)
	require.Greater(t, cp.ID, last.ID)
	t.Logf("isolated leader: checkpoint %d complete %s later under %s", cp.ID, cp.At.Sub(at).Round(time.Millisecond), next.ID)
	u.require(t)

	// Later, when it has noticed.
	for _, args := range [][]string{
		{"cancel", u.id, "--patience", "1s", "--wait", "5s"},
		{"list", "--patience", "1s"},
		{"submit", "--patience", "1s", c.Binaries.Job, "--", "--shape", "pass", "--brokers", c.Broker.Addr(), "--in", u.run.Topics.Orders, "--out", u.run.Topics.Totals},
	} {
		r := atNode(t, network.Direct(old), args...)
		require.NotZero(t, r.Code, "%v at the isolated node: %s", args, r.Stdout)
		require.NotEmpty(t, r.Stderr)
	}
	u.awaitCheckpoint(t, time.Now())
	healed := time.Now()
	network.Heal()
	c.WaitWhole(30 * time.Second)
	u.awaitCheckpoint(t, healed)
	u.require(t)

	// What the log retains is complete on storage: the former leader has deleted nothing of it.
	var list struct {
		Checkpoints []struct{ ID, Path, State string } `json:"checkpoints"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("checkpoints", u.id, "-o", "json")), &list))
	retained := 0
	for _, cp := range list.Checkpoints {
		if cp.Path != "" && cp.State == "completed" {
			require.FileExists(t, filepath.Join(c.Dir, "storage", cp.Path))
			retained++
		}
	}
	require.NotZero(t, retained, "%v", list)
	requireSilentAfter(t, old, at)
	u.end(t)
	var jobs struct {
		Jobs []struct{ ID string } `json:"jobs"`
	}
	require.NoError(t, json.Unmarshal([]byte(c.MustWeir("list", "--all", "-o", "json")), &jobs))
	require.Len(t, jobs.Jobs, 1, "a job was submitted at the isolated node")
}

// Followers that are cut off disturb nobody, neither meanwhile nor when they come back.
func TestIsolatedFollowerDisturbsNothing(t *testing.T) {
	network := harness.NewNetwork(t, 3)
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 1, Slots: 2, ConfigureJobManager: network.Configure})
	network.Of(c)
	u := startUndisturbed(t, c, 10*2000, 2000, 2)
	leader, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	for _, p := range c.JobManagers() {
		if p != leader {
			network.Isolate(p)
			break
		}
	}
	time.Sleep(3 * time.Second) // several election timeouts
	u.awaitCheckpoint(t, time.Now())
	network.Heal()
	c.WaitWhole(30 * time.Second)
	u.awaitCheckpoint(t, time.Now())
	now, err := c.WaitLeader(t.Context())
	require.NoError(t, err)
	require.Equal(t, leader.ID, now.ID, "leader")
	u.end(t)
}

// atNode runs the command line against one address.
func atNode(t *testing.T, address string, args ...string) harness.Result {
	t.Helper()
	bin, err := harness.Build()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), bin.Weir, args...)
	cmd.Env = append(os.Environ(), "WEIR_JOBMANAGER="+address)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return harness.Result{Stdout: out.String(), Stderr: errs.String(), Code: cmd.ProcessState.ExitCode()}
}

// awaitOtherLeader waits until a JobManager other than old leads.
func awaitOtherLeader(t *testing.T, c *harness.Cluster, old *localcluster.Process) *localcluster.Process {
	t.Helper()
	var next *localcluster.Process
	harness.Eventually(t, 20*time.Second, "another leader", func() error {
		for _, p := range c.JobManagers() {
			if p != old && c.Leads(t.Context(), p) {
				next = p
				return nil
			}
		}
		return fmt.Errorf("none but %s leads", old.ID)
	})
	return next
}

// requireSilentAfter checks in the log of a former leader that its drivers did nothing after it was cut off.
func requireSilentAfter(t *testing.T, p *localcluster.Process, since time.Time) {
	t.Helper()
	for _, line := range strings.Split(p.LogTail(10_000), "\n") {
		for _, done := range []string{"attempt begins", "attempt runs", "job ends", "job ended", "job restarts", "attempt fails", "job submitted"} {
			if strings.Contains(line, `msg="`+done) && logTime(t, line).After(since) {
				require.Fail(t, "the former leader acted", "%s", line)
			}
		}
	}
}

// logTime returns the time of a log line.
func logTime(t *testing.T, line string) time.Time {
	t.Helper()
	text, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
	at, err := time.Parse(time.RFC3339Nano, text)
	require.NoError(t, err, "%s", line)
	return at
}
