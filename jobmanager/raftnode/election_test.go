package raftnode_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// TestNextLeaderIsThereSoon ends the leader's node without handing over, and measures the time until another one has applied the
// whole log, with the default settings.
func TestNextLeaderIsThereSoon(t *testing.T) {
	cfgs := configs(t)
	for i := range cfgs {
		cfgs[i].Heartbeat, cfgs[i].Election = 500*time.Millisecond, 500*time.Millisecond
	}
	nodes := openAll(t, cfgs)
	propose(t, 1, nodes...)
	requireVoters(t, nodes...)
	var took []time.Duration
	for range rounds(7) {
		leader := leaderOf(t, nodes...)
		i := indexOf(nodes, leader)
		rest := without(nodes, leader)
		for _, n := range rest {
			eventually(t, "the followers follow", func() bool { return n.Leader() == leader.cfg.ID })
		}
		began := time.Now()
		leader.close(t)
		leaderOf(t, rest...)
		took = append(took, time.Since(began))
		nodes[i] = open(t, leader.cfg)
		eventually(t, "it is back", func() bool { return nodes[i].Leader() != "" })
	}
	slices.Sort(took)
	median, longest := took[len(took)/2], took[len(took)-1]
	t.Logf("%d elections: median %s, longest %s", len(took), median.Round(time.Millisecond), longest.Round(time.Millisecond))
	require.LessOrEqual(t, median, 850*time.Millisecond, "the library by itself takes longer")
	require.LessOrEqual(t, longest, 4*time.Second, "generous, since a busy machine may split votes")
}

// TestHandingOverCostsNoElectionTimeout has timeouts that nobody could overlook.
func TestHandingOverCostsNoElectionTimeout(t *testing.T) {
	cfgs := configs(t)
	for i := range cfgs {
		cfgs[i].Heartbeat, cfgs[i].Election = 3*time.Second, 3*time.Second
	}
	nodes := openAll(t, cfgs)
	propose(t, 1, nodes...)
	requireVoters(t, nodes...)
	leader := leaderOf(t, nodes...)
	began := time.Now()
	require.NoError(t, leader.TransferLeadership(t.Context()))
	next := leaderOf(t, without(nodes, leader)...)
	leader.close(t)
	_, err := next.Propose(t.Context(), number(1))
	require.NoError(t, err)
	t.Logf("handed over in %s", time.Since(began).Round(time.Millisecond))
	require.Less(t, time.Since(began), 2*time.Second)
}

// TestLogIsBoundedBySnapshots writes thousands of entries with a low threshold.
func TestLogIsBoundedBySnapshots(t *testing.T) {
	n := open(t, raftnode.Config{
		ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0", SnapshotThreshold: 200, TrailingLogs: 100, SnapshotInterval: 10 * time.Millisecond,
	})
	leaderOf(t, n)
	const parts, perPart = 10, 400
	var size [parts]int64
	var took [parts]time.Duration // the median of the part
	for i := range parts {
		var each []time.Duration
		for range perPart {
			began := time.Now()
			_, err := n.Propose(t.Context(), number(1))
			require.NoError(t, err)
			each = append(each, time.Since(began))
		}
		slices.Sort(each)
		took[i] = each[len(each)/2]
		info, err := os.Stat(filepath.Join(n.cfg.Dir, "raft.db"))
		require.NoError(t, err)
		size[i] = info.Size()
	}
	t.Logf("sizes in bytes: %v; times: %v", size, took)
	require.Equal(t, size[parts/2], size[parts-1], "the file is flat in the second half")
	require.Less(t, size[parts-1], int64(2<<20))
	require.Less(t, took[parts-1], 2*max(took[0], took[1])+time.Millisecond, "a write costs what it did at the start")
	snapshots, err := filepath.Glob(filepath.Join(n.cfg.Dir, "snapshots", "*"))
	require.NoError(t, err)
	require.LessOrEqual(t, len(snapshots), 3)
}
