package raftnode_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// calm is the timeout of tests in which the leader must not change although the machine may be busy.
const calm = 700 * time.Millisecond

// threeMembers is a running cluster with a vote for each.
func threeMembers(t *testing.T) []*testNode {
	t.Helper()
	cfgs := configs(t)
	for i := range cfgs {
		cfgs[i].Heartbeat, cfgs[i].Election = calm, calm
	}
	nodes := openAll(t, cfgs)
	propose(t, 1, nodes...)
	requireVoters(t, nodes...)
	return nodes
}

// quietFor fails when the leader or its term changes within d.
func quietFor(t *testing.T, d time.Duration, leader *testNode, nodes ...*testNode) {
	t.Helper()
	term := leader.Term()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, n := range nodes {
			require.Equal(t, term, n.Term(), "term of %s", n.cfg.ID)
		}
		require.True(t, leader.IsLeader())
	}
}

func without(nodes []*testNode, out *testNode) []*testNode {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *testNode) bool { return n == out })
}

func TestRemovedMemberIsToldAndStaysQuiet(t *testing.T) {
	nodes := threeMembers(t)
	leader := leaderOf(t, nodes...)
	removed := without(nodes, leader)[0]
	rest := without(nodes, removed)
	require.NoError(t, leader.Remove(t.Context(), removed.cfg.ID))
	require.NoError(t, leader.Remove(t.Context(), removed.cfg.ID), "repeated")
	quietFor(t, 4*time.Second, leader, rest...)
	eventually(t, "it knows", func() bool { return removed.Trouble() != "" })
	require.Contains(t, removed.Trouble(), "removed from the cluster")

	// One that was down when it was removed learns it when it comes back.
	require.NoError(t, leader.Add(t.Context(), removed.cfg.ID, removed.cfg.Listen))
	requireVoters(t, nodes...)
	eventually(t, "it is a member again", func() bool { return removed.Trouble() == "" })
	removed.close(t)
	require.NoError(t, leader.Remove(t.Context(), removed.cfg.ID))
	back := open(t, removed.cfg)
	eventually(t, "it knows", func() bool { return back.Trouble() != "" })
	quietFor(t, time.Second, leader, rest...)
	propose(t, 1, rest...)
}

func TestMemberIsAddedWithoutAVoteUntilItHasCaughtUp(t *testing.T) {
	nodes := threeMembers(t)
	leader := leaderOf(t, nodes...)
	// An address at which nobody answers costs the majority nothing.
	require.NoError(t, leader.Add(t.Context(), "jm9", "127.0.0.1:1"))
	for range 3 {
		servers, err := leader.Servers()
		require.NoError(t, err)
		require.False(t, servers[slices.IndexFunc(servers, func(s raftnode.Server) bool { return s.ID == "jm9" })].Voter)
		propose(t, 1, nodes...)
	}
	without(nodes, leader)[0].close(t)
	propose(t, 1, leader)
	require.NoError(t, leader.Remove(t.Context(), "jm9"))
}

func TestRemovalThatCostsTheMajorityIsRefused(t *testing.T) {
	nodes := threeMembers(t)
	leader := leaderOf(t, nodes...)
	rest := without(nodes, leader)
	rest[0].close(t)
	require.ErrorIs(t, leader.Remove(t.Context(), rest[1].cfg.ID), raftnode.ErrQuorum)
	require.ErrorIs(t, leader.Remove(t.Context(), leader.cfg.ID), raftnode.ErrQuorum)
	require.NoError(t, leader.Remove(t.Context(), rest[0].cfg.ID), "the one that is down may go")
	propose(t, 1, leader)
}

func TestLeadershipIsHandedToOneThatAnswers(t *testing.T) {
	nodes := threeMembers(t)
	for range 3 {
		leader := leaderOf(t, nodes...)
		require.NoError(t, leader.TransferLeadership(t.Context()))
		require.NotEqual(t, leader, leaderOf(t, nodes...))
	}
	leader := leaderOf(t, nodes...)
	rest := without(nodes, leader)
	rest[0].close(t)
	require.NoError(t, leader.TransferLeadership(t.Context()), "not to the one that is down")
	leader = leaderOf(t, leader, rest[1])
	without(without(nodes, rest[0]), leader)[0].close(t)
	require.ErrorIs(t, leader.TransferLeadership(t.Context()), raftnode.ErrNoSuccessor)
}

func TestMemberThatWasCutOffDisturbsNobody(t *testing.T) {
	cfgs, net := proxied(t)
	for i := range cfgs {
		cfgs[i].Heartbeat, cfgs[i].Election = calm, calm
	}
	nodes := openAll(t, cfgs)
	propose(t, 1, nodes...)
	requireVoters(t, nodes...)
	leader := leaderOf(t, nodes...)
	cut := without(nodes, leader)[0]
	term := leader.Term()
	net.isolate(indexOf(nodes, cut), true)
	eventually(t, "it has lost its leader", func() bool { return cut.Leader() == "" })
	quietFor(t, 4*time.Second, leader, nodes...)
	net.isolate(indexOf(nodes, cut), false)
	eventually(t, "it follows again", func() bool { return cut.Leader() != "" })
	propose(t, 1, nodes...)
	everywhere(t, 2, nodes...)
	require.LessOrEqual(t, leaderOf(t, nodes...).Term(), term+1, "at most one change of the leader")
}

func TestMovedMemberIsFoundWithoutTouchingTheOthers(t *testing.T) {
	t.Run("its old address refuses", func(t *testing.T) { move(t, nil) })
	t.Run("its old address is silent", func(t *testing.T) {
		move(t, func(old string) {
			l, err := net.Listen("tcp", old) // and nobody accepts, as when the machine is gone
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
		})
	})
}

// move lets a member come back on another port, after something was done with its old address.
func move(t *testing.T, then func(old string)) {
	t.Helper()
	nodes := threeMembers(t)
	leader := leaderOf(t, nodes...)
	moved := without(nodes, leader)[0]
	rest := without(nodes, moved)
	moved.close(t)
	if then != nil {
		then(moved.Address())
	}
	propose(t, 10, rest...)
	cfg := moved.cfg
	cfg.Members = slices.Clone(cfg.Members)
	cfg.Listen = freeAddress(t)
	cfg.Advertise = cfg.Listen
	for i := range cfg.Members {
		if cfg.Members[i].ID == cfg.ID {
			cfg.Members[i].Address = cfg.Listen
		}
	}
	moved = open(t, cfg)
	everywhere(t, 11, moved)
	nodes = append(rest, moved)
	for _, n := range nodes {
		eventually(t, "the new address is in the log", func() bool {
			servers, err := n.Servers()
			require.NoError(t, err)
			return slices.Contains(servers, raftnode.Server{ID: cfg.ID, Address: cfg.Listen, Voter: true})
		})
	}
	// It counts: another one may go.
	without(rest, leader)[0].close(t)
	propose(t, 100, leader, moved)
	everywhere(t, 111, moved)
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func TestLateMemberCatchesUpBySnapshotUnderLoadAndCanLead(t *testing.T) {
	cfgs := configs(t)
	for i := range cfgs {
		cfgs[i].SnapshotThreshold, cfgs[i].TrailingLogs, cfgs[i].SnapshotInterval = 500, 100, 50*time.Millisecond
		cfgs[i].Heartbeat, cfgs[i].Election = calm, calm
	}
	nodes := openAll(t, cfgs)
	propose(t, 1, nodes...)
	requireVoters(t, nodes...)
	leader := leaderOf(t, nodes...)
	late := without(nodes, leader)[0]
	late.close(t)

	const before = 20_000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rest := without(nodes, late)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for _, n := range rest {
					if n.IsLeader() {
						_, _ = n.Propose(ctx, number(1))
					}
				}
			}
		})
	}
	for rest[0].fsm.value() < before {
		require.NoError(t, t.Context().Err())
		time.Sleep(10 * time.Millisecond)
	}
	began := time.Now()
	late = open(t, late.cfg)
	at := rest[0].fsm.value()
	eventually(t, "it has caught up while the load goes on", func() bool { return late.fsm.value() > at })
	t.Logf("caught up with %d entries in %s under load", at, time.Since(began).Round(time.Millisecond))
	cancel()
	wg.Wait()
	require.NoError(t, leaderOf(t, rest...).Barrier(t.Context()))
	sum := leaderOf(t, rest...).fsm.value()
	for i := range nodes {
		if nodes[i].cfg.ID == late.cfg.ID {
			nodes[i] = late
		}
	}
	eventually(t, "it leads", func() bool {
		n := leaderOf(t, nodes...)
		return n == late || (n.TransferLeadership(t.Context()) == nil && late.IsLeader())
	})
	require.NoError(t, late.Barrier(t.Context()))
	require.Equal(t, sum, late.fsm.value())
	_, err := late.Propose(t.Context(), number(1))
	require.NoError(t, err)
}
