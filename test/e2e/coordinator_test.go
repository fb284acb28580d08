package e2e_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/test/harness"
)

// The coordinators of transactions move from node to node of a Kafka cluster, under load, and once their node is away. Nothing stops for
// long, and nothing is left of what was given up. At last there is no coordinator any more: a cancel answers all the same.
//
// WEIR_COORDINATOR_MOVES is how often they move, WEIR_COORDINATOR_PAUSE how long they then stay.
func TestCoordinatorsMove(t *testing.T) {
	t.Parallel()
	pause, err := time.ParseDuration(envOr("WEIR_COORDINATOR_PAUSE", "500ms"))
	require.NoError(t, err)
	moves := numberOr(t, "WEIR_COORDINATOR_MOVES", "3")
	long := moves >= 10
	interval, budget := "500ms", 3*time.Second
	if long {
		interval = "3s"
	}
	nodes := kafkatest.StartNodes(t, 3, kafkatest.Config{})
	c := harness.StartWith(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 4, ConfigureJobManager: func(cfg *jobmanager.Config) {
		if !long { // the default outlasts the command that cancels
			cfg.RecoveryBudget = budget
		}
	}}, nodes[0])
	type pipe struct {
		id, in, out string
		feed        *feed
		before      footprint
		watch       *harness.CheckpointWatch
	}
	jobs := map[string]*pipe{}
	for _, client := range []string{"native", "confluent"} {
		j := &pipe{in: c.Topic(2, nil), out: c.Topic(2, nil)}
		j.id = c.Submit([]string{"-p", "2", "--name", client}, "--shape", "pass", "--in", j.in, "--out", j.out, "--client", client,
			"--interval", interval, "--goroutines", goroutinesOf(c))
		j.feed, j.watch = startFeedOf(t, c, j.in, 1, 100*time.Millisecond), c.WatchCheckpoints(j.id)
		jobs[client] = j
	}
	for _, j := range jobs {
		c.AwaitCommitted(j.out, 200, 40*time.Second)
		j.before = footprintOf(t, c, j.out)
	}
	for move := range moves {
		to := nodes[move%2+1]
		at := time.Now()
		require.NoError(t, nodes.Coordinate(t.Context(), to, false))
		t.Logf("coordinators moved within %s", time.Since(at).Round(time.Millisecond))
		time.Sleep(pause)
		if move == moves/2 {
			require.NoError(t, to.Kill())
			time.Sleep(pause)
			require.NoError(t, to.Restart(t.Context()))
		}
	}
	for client, j := range jobs {
		last := j.feed.end()
		harness.RequireNumbers(t, c.AwaitCommitted(j.out, last, 70*time.Second), 1, last)
		requireNoneOpen(t, c, j.id, j.out)
		longest, _, _ := j.watch.LongestPause()
		after := footprintOf(t, c, j.out)
		t.Logf("%s: longest pause between checkpoints %s, restarts %s, first %+v, then %+v", client, longest.Round(time.Millisecond),
			orZero(c.Job(j.id).Restarts), j.before, after)
		require.Less(t, longest, time.Minute)
		require.LessOrEqual(t, after.threads, j.before.threads*6/5+4)
		require.NotZero(t, after.goroutines)
		require.LessOrEqual(t, after.goroutines, j.before.goroutines*6/5)
		require.LessOrEqual(t, after.descriptors, j.before.descriptors*6/5+10)
	}

	require.NoError(t, nodes.Coordinate(t.Context(), nodes[2], true))
	already := map[string]int{}
	for _, j := range jobs {
		already[j.id] = j.feed.last
		j.feed = startFeedOf(t, c, j.in, j.feed.last+1, 100*time.Millisecond)
	}
	for _, j := range jobs {
		c.AwaitCommitted(j.out, already[j.id]+1, 40*time.Second)
	}
	require.NoError(t, nodes[2].Kill())
	var cancels sync.WaitGroup
	for _, j := range jobs {
		j.feed.end()
		cancels.Go(func() {
			at := time.Now()
			r := c.Weir("cancel", j.id)
			t.Logf("without a coordinator: answer after %s: %d %s", time.Since(at).Round(time.Millisecond), r.Code, r.Stderr)
			if took := time.Since(at); took > time.Minute || r.Code == 0 || !long && !strings.Contains(r.Stderr, "settling gave up after "+budget.String()) {
				t.Errorf("cancel took %s, with exit code %d", took, r.Code)
			}
		})
	}
	cancels.Wait()
	c.MustWeir("list")
}
