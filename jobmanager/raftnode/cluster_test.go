package raftnode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// rounds is how often a test of a whole cluster is repeated: WEIR_ROUNDS, or what it takes by default.
func rounds(usual int) int {
	if n, err := strconv.Atoi(os.Getenv("WEIR_ROUNDS")); err == nil {
		return n
	}
	return usual
}

func openAll(t *testing.T, cfgs []raftnode.Config) []*testNode {
	t.Helper()
	nodes, errs := make([]*testNode, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() { nodes[i], errs[i] = tryOpen(t, cfg) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return nodes
}

func closeAll(t *testing.T, nodes []*testNode) {
	var wg sync.WaitGroup
	for _, n := range nodes {
		wg.Go(func() { n.close(t) })
	}
	wg.Wait()
}

// propose writes through whoever leads, once. Nobody else must write meanwhile.
func propose(t *testing.T, n uint64, nodes ...*testNode) {
	t.Helper()
	leader := leaderOf(t, nodes...)
	before := leader.fsm.value()
	eventually(t, "a proposal is accepted", func() bool {
		_, err := leader.Propose(t.Context(), number(n))
		if err == nil {
			return true
		}
		leader = leaderOf(t, nodes...)
		return leader.fsm.value() == before+n // what was unknown is so no more
	})
}

func everywhere(t *testing.T, sum uint64, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, fmt.Sprintf("%s has %d", n.cfg.ID, sum), func() bool { return n.fsm.value() == sum })
	}
}

// oneLeaderPerTerm fails the test when two members lead in the same term.
type oneLeaderPerTerm struct {
	mu   sync.Mutex
	seen map[uint64]string
	bad  string
	stop chan struct{}
	wg   sync.WaitGroup
}

func watchLeaders(t *testing.T) *oneLeaderPerTerm {
	w := &oneLeaderPerTerm{seen: map[uint64]string{}, stop: make(chan struct{})}
	t.Cleanup(func() {
		close(w.stop)
		w.wg.Wait()
		require.Empty(t, w.bad)
	})
	return w
}

func (w *oneLeaderPerTerm) add(n *testNode) {
	w.wg.Go(func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
			before := n.Term()
			if !n.IsLeader() || n.Term() != before {
				continue
			}
			w.mu.Lock()
			if by, ok := w.seen[before]; ok && by != n.cfg.ID {
				w.bad = fmt.Sprintf("%s and %s lead in term %d", by, n.cfg.ID, before)
			}
			w.seen[before] = n.cfg.ID
			w.mu.Unlock()
		}
	})
}

func TestFirstStartAtTheSameMomentMakesOneCluster(t *testing.T) {
	for range rounds(20) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := watchLeaders(t)
			nodes := openAll(t, configs(t))
			for _, n := range nodes {
				w.add(n)
			}
			propose(t, 5, nodes...)
			everywhere(t, 5, nodes...)
			requireVoters(t, nodes...)
		})
	}
}

func requireVoters(t *testing.T, nodes ...*testNode) {
	t.Helper()
	for _, n := range nodes {
		eventually(t, n.cfg.ID+" knows three voters", func() bool {
			servers, err := n.Servers()
			require.NoError(t, err)
			voters := 0
			for _, s := range servers {
				if s.Voter {
					voters++
				}
			}
			return voters == 3 && len(servers) == 3
		})
	}
}

func TestStateSurvivesStopsWipesAndLosses(t *testing.T) {
	for range rounds(8) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := watchLeaders(t)
			watched := func(nodes ...*testNode) []*testNode {
				for _, n := range nodes {
					w.add(n)
				}
				return nodes
			}
			cfgs := configs(t)
			nodes := watched(openAll(t, cfgs)...)
			propose(t, 1, nodes...)
			everywhere(t, 1, nodes...)
			requireVoters(t, nodes...)
			closeAll(t, nodes)

			// All stopped and started.
			nodes = watched(openAll(t, cfgs)...)
			propose(t, 10, nodes...)
			everywhere(t, 11, nodes...)
			requireVoters(t, nodes...)

			// One wiped while the others run: it comes back by itself, with its vote.
			nodes[2].close(t)
			cfgs[2].Dir = t.TempDir()
			nodes[2] = watched(open(t, cfgs[2]))[0]
			propose(t, 100, nodes...)
			everywhere(t, 111, nodes...)
			requireVoters(t, nodes...)

			// Two wiped, and started before the third: nobody leads.
			closeAll(t, nodes)
			cfgs[0].Dir, cfgs[1].Dir = t.TempDir(), t.TempDir()
			wiped := watched(open(t, cfgs[0]), open(t, cfgs[1]))
			eventually(t, "they say what they wait for", func() bool { return wiped[0].Trouble() != "" && wiped[1].Trouble() != "" })
			survivor := watched(open(t, cfgs[2]))[0]
			eventually(t, "the wiped ones say why", func() bool {
				said, err := survivor.Introduce(t.Context(), cfgs[0].ID, cfgs[0].Listen)
				return err == nil && said.Empty && said.Trouble != "" && said.Trouble == wiped[0].Trouble()
			})
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				require.False(t, survivor.IsLeader() || wiped[0].IsLeader() || wiped[1].IsLeader())
			}

			// The explicit act.
			survivor.close(t)
			self := raftnode.Member{ID: cfgs[2].ID, Address: cfgs[2].Listen}
			found, err := raftnode.Recover(cfgs[2].Dir, self, &counter{})
			require.NoError(t, err)
			require.Len(t, found.Members, 3)
			survivor = watched(open(t, cfgs[2]))[0]
			leaderOf(t, survivor)
			everywhere(t, 111, survivor)
			for _, n := range wiped {
				require.NoError(t, survivor.Add(t.Context(), n.cfg.ID, n.cfg.Listen))
			}
			nodes = append(wiped, survivor)
			requireVoters(t, nodes...)
			everywhere(t, 111, nodes...)
			propose(t, 1000, nodes...)
			everywhere(t, 1111, nodes...)
		})
	}
}

func TestRecoverRefusesWhatIsNotAMembersDirectory(t *testing.T) {
	self := raftnode.Member{ID: "jm1", Address: "127.0.0.1:1"}
	_, err := raftnode.Recover(t.TempDir(), self, &counter{})
	require.ErrorIs(t, err, raftnode.ErrDamaged)
	n := open(t, raftnode.Config{ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	leaderOf(t, n)
	_, err = raftnode.Recover(n.cfg.Dir, self, &counter{})
	require.ErrorIs(t, err, raftnode.ErrInUse)
	_, err = n.Propose(t.Context(), number(4))
	require.NoError(t, err)
	n.close(t)
	sum := &counter{}
	found, err := raftnode.Inspect(n.cfg.Dir, sum)
	require.NoError(t, err)
	require.EqualValues(t, 4, sum.value())
	require.Equal(t, "jm1", found.Members[0].ID)
	require.NotZero(t, found.Term)
}

// network is the members' connections, each of which can be cut: links[i][j] is the way from i to j.
type network struct {
	links [3][3]*kafkatest.Proxy
}

// proxied gives each member a list in which the others are behind proxies of its own.
func proxied(t *testing.T) ([]raftnode.Config, *network) {
	cfgs, net := configs(t), &network{}
	for i := range cfgs {
		members := make([]raftnode.Member, len(cfgs))
		copy(members, cfgs[i].Members)
		for j := range cfgs {
			if i == j {
				continue
			}
			p, err := kafkatest.NewProxy()
			require.NoError(t, err)
			t.Cleanup(func() { _ = p.Close() })
			p.SetTarget(cfgs[j].Listen)
			net.links[i][j] = p
			members[j].Address = p.Addr()
		}
		cfgs[i].Members = members
	}
	return cfgs, net
}

func (n *network) isolate(i int, cut bool) {
	for j := range n.links {
		for _, p := range []*kafkatest.Proxy{n.links[i][j], n.links[j][i]} {
			switch {
			case p == nil:
			case cut:
				p.Cut()
			default:
				p.Restore()
			}
		}
	}
}

func indexOf(nodes []*testNode, n *testNode) int {
	for i := range nodes {
		if nodes[i] == n {
			return i
		}
	}
	return -1
}

func TestLeaderThatIsCutOffAcceptsNothing(t *testing.T) {
	for range rounds(20) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			w := watchLeaders(t)
			cfgs, net := proxied(t)
			nodes := openAll(t, cfgs)
			for _, n := range nodes {
				w.add(n)
			}
			propose(t, 1, nodes...)
			everywhere(t, 1, nodes...)
			requireVoters(t, nodes...)
			old := leaderOf(t, nodes...)
			i := indexOf(nodes, old)
			net.isolate(i, true)

			// Both sides are written to all the time.
			var accepted, minority atomic.Uint64
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for k, n := range nodes {
				wg.Go(func() {
					for ctx.Err() == nil {
						short, stop := context.WithTimeout(ctx, 300*time.Millisecond)
						_, err := n.Propose(short, number(1))
						stop()
						if err == nil && k == i {
							minority.Add(1)
						} else if err == nil {
							accepted.Add(1)
						}
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			eventually(t, "the majority goes on", func() bool { return accepted.Load() > 20 })
			eventually(t, "the minority has no leader", func() bool { return !old.IsLeader() })
			term := old.Term()
			cancel()
			wg.Wait()
			require.Zero(t, minority.Load(), "accepted by the minority")
			require.Equal(t, term, old.Term(), "a member that reaches nobody must not raise its term")

			net.isolate(i, false)
			eventually(t, "all are the same again", func() bool {
				v := nodes[0].fsm.value()
				return v >= 1+accepted.Load() && nodes[1].fsm.value() == v && nodes[2].fsm.value() == v && old.Leader() != ""
			})
			propose(t, 1, nodes...)
		})
	}
}
