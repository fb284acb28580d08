package e2e_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/test/harness"
)

// What an operator does to upgrade a cluster: every node in turn, in order, with the load on. JobManagers come first, and no task
// notices; a TaskManager hands its tasks over. At last the power fails for all of them, and the job comes back by itself.
func TestRollingRestartLosesNothing(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 3, TaskManagers: 3, Slots: 1})
	u := startUndisturbed(t, c, 26*3000, 3000, 2)
	inTurn := func(p *localcluster.Process) {
		at := time.Now()
		require.NoError(t, p.Stop(15*time.Second), "orderly end of %s", p.ID)
		ended := time.Since(at)
		require.NoError(t, p.Start())
		c.WaitWhole(30 * time.Second)
		u.awaitCheckpoint(t, at)
		t.Logf("%s: ended within %s, whole and with a new checkpoint after %s", p.ID, ended.Round(time.Millisecond), time.Since(at).Round(time.Millisecond))
	}
	for _, p := range c.JobManagers() {
		inTurn(p)
		u.require(t)
	}
	for _, p := range c.TaskManagers() {
		inTurn(p)
		c.WaitState(u.id, "RUNNING", 30*time.Second)
	}
	before := c.Job(u.id)
	at := time.Now()
	killEverything(t, c)
	c.WaitWhole(30 * time.Second)
	u.awaitCheckpoint(t, at)
	require.False(t, u.run.Finished(), "the load ended before the faults")
	t.Logf("everything killed: a new checkpoint after %s", time.Since(at).Round(time.Millisecond))
	u.run.RequireExactlyOnce(time.Minute)
	require.NotEqual(t, before.Attempt, c.WaitState(u.id, "RUNNING", 20*time.Second).Attempt)
	c.MustWeir("cancel", u.id)
	requireNothingLeft(t, c, u.run.Topics.Totals)
}
