package raftnode_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/jobmanager/raftnode"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counter is a state machine that adds up numbers.
type counter struct {
	mu  sync.Mutex
	sum uint64
}

func (c *counter) Apply(l *raft.Log) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum += binary.BigEndian.Uint64(l.Data)
	return c.sum
}

func (c *counter) value() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return counterSnapshot(c.value()), nil }

func (c *counter) Restore(r io.ReadCloser) error {
	defer r.Close()
	b := make([]byte, 8)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum = binary.BigEndian.Uint64(b)
	return nil
}

type counterSnapshot uint64

func (s counterSnapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(number(uint64(s))); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (counterSnapshot) Release() {}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// testLogger logs to standard error when WEIR_TEST_LOG is set.
func testLogger(id string) *slog.Logger {
	if os.Getenv("WEIR_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("member", id)
}

type testNode struct {
	*raftnode.Node
	cfg raftnode.Config
	fsm *counter
}

func open(t *testing.T, cfg raftnode.Config) *testNode {
	t.Helper()
	n, err := tryOpen(t, cfg)
	require.NoError(t, err)
	return n
}

func tryOpen(t *testing.T, cfg raftnode.Config) (*testNode, error) {
	t.Helper()
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat, cfg.Election = 300*time.Millisecond, 300*time.Millisecond // on a busy machine less is no sign of death
	}
	fsm := &counter{}
	if cfg.Logger == nil {
		cfg.Logger = testLogger(cfg.ID)
	}
	n, err := raftnode.Open(cfg, fsm)
	if err != nil {
		return nil, err
	}
	tn := &testNode{Node: n, cfg: cfg, fsm: fsm}
	t.Cleanup(func() { tn.close(t) })
	return tn, nil
}

func (n *testNode) close(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, n.Shutdown(ctx))
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			require.FailNow(t, "waited in vain until "+what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// configs are those of three members.
func configs(t *testing.T) []raftnode.Config {
	var members []raftnode.Member
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		members = append(members, raftnode.Member{ID: fmt.Sprintf("jm%d", i+1), Address: l.Addr().String()})
		require.NoError(t, l.Close())
	}
	var out []raftnode.Config
	for _, m := range members {
		out = append(out, raftnode.Config{
			ID: m.ID, Dir: t.TempDir(), Listen: m.Address, Advertise: m.Address, Members: members,
			ServiceAddress: "service-of-" + m.ID, Level: 7,
		})
	}
	return out
}

func leaderOf(t *testing.T, nodes ...*testNode) *testNode {
	t.Helper()
	var leader *testNode
	eventually(t, "there is a leader", func() bool {
		for _, n := range nodes {
			if n.IsLeader() && n.Barrier(t.Context()) == nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func TestSingleNodeBootstrapsOnceAndKeepsItsState(t *testing.T) {
	cfg := raftnode.Config{ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	n := open(t, cfg)
	leaderOf(t, n)
	require.True(t, <-n.Leadership())
	for i := uint64(1); i <= 10; i++ {
		res, err := n.Propose(t.Context(), number(1))
		require.NoError(t, err)
		require.Equal(t, i, res)
	}
	term := n.Term()
	n.close(t)

	n = open(t, cfg)
	leaderOf(t, n)
	require.EqualValues(t, 10, n.fsm.value())
	require.Greater(t, n.Term(), term, "a node with state goes on instead of beginning anew")
}

func TestSecondProcessIsToldThatTheDirectoryIsInUse(t *testing.T) {
	cfg := raftnode.Config{ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	open(t, cfg)
	began := time.Now()
	_, err := tryOpen(t, cfg)
	require.ErrorIs(t, err, raftnode.ErrInUse)
	require.ErrorContains(t, err, "in use")
	require.Less(t, time.Since(began), 5*time.Second)
}

func TestShutdownThatRunsOutOfTimeGoesOnByItself(t *testing.T) {
	cfg := raftnode.Config{ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0"}
	n, err := raftnode.Open(cfg, &counter{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, n.Shutdown(ctx), context.Canceled)
	require.ErrorIs(t, n.Shutdown(t.Context()), context.Canceled, "the first answer stands")
	open(t, cfg) // waits for the directory to be free
}

func TestAnotherMemberTakesOverWithEverythingCommitted(t *testing.T) {
	cfgs := configs(t)
	nodes := []*testNode{open(t, cfgs[0]), open(t, cfgs[1]), open(t, cfgs[2])}
	for range 20 {
		propose(t, 1, nodes...)
	}
	requireVoters(t, nodes...)
	leader := leaderOf(t, nodes...)
	var rest []*testNode
	for _, n := range nodes {
		if n != leader {
			rest = append(rest, n)
		}
	}
	_, err := rest[0].Propose(t.Context(), number(1))
	require.ErrorIs(t, err, raftnode.ErrNotLeader)
	eventually(t, "the follower knows its leader", func() bool { return rest[0].Leader() == leader.cfg.ID })

	leader.close(t)
	next := leaderOf(t, rest...)
	require.EqualValues(t, 20, next.fsm.value())
	propose(t, 1, rest...)

	back := open(t, leader.cfg)
	eventually(t, "the member that was away catches up", func() bool { return back.fsm.value() == 21 })
	servers, err := next.Servers()
	require.NoError(t, err)
	require.Len(t, servers, 3)
	said, err := back.Introduce(t.Context(), back.cfg.ID, back.Address())
	require.NoError(t, err)
	require.Equal(t, raftnode.Introduction{ServiceAddress: "service-of-" + back.cfg.ID, Level: 7}, said)
	_, err = back.Introduce(t.Context(), "someone", back.Address())
	require.ErrorContains(t, err, back.cfg.ID)
}

func TestIntroductionEndsWithItsCaller(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	require.NoError(t, err)
	defer l.Close()
	n := open(t, raftnode.Config{ID: "jm9", Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = n.Introduce(ctx, "jm1", l.Addr().String())
	require.Error(t, err)
	require.Less(t, time.Since(began), time.Second)
}

func TestProposalOfALostLeaderIsUnknownOrRefused(t *testing.T) {
	cfgs := configs(t)
	nodes := []*testNode{open(t, cfgs[0]), open(t, cfgs[1]), open(t, cfgs[2])}
	leader := leaderOf(t, nodes...)
	for _, n := range nodes {
		if n != leader {
			n.close(t)
		}
	}
	// Without a majority the entry cannot be committed, and when the leader steps down nobody knows what will become of it.
	_, err := leader.Propose(t.Context(), number(1))
	require.Error(t, err)
	require.True(t, errors.Is(err, raftnode.ErrUnknownOutcome) || errors.Is(err, raftnode.ErrNotLeader))
	eventually(t, "the leader has stepped down", func() bool { return !leader.IsLeader() })
	_, err = leader.Propose(t.Context(), number(1))
	require.ErrorIs(t, err, raftnode.ErrNotLeader)
	require.Error(t, leader.Barrier(t.Context()))
}

func TestCanceledProposalHasAnUnknownOutcome(t *testing.T) {
	cfgs := configs(t)
	nodes := []*testNode{open(t, cfgs[0]), open(t, cfgs[1]), open(t, cfgs[2])}
	leader := leaderOf(t, nodes...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := leader.Propose(ctx, number(1))
	require.ErrorIs(t, err, raftnode.ErrNotLeader, "nothing is proposed for a caller that has gone")
	require.NoError(t, leader.Barrier(t.Context()))
	require.Zero(t, leader.fsm.value())
}

func TestMovedMemberIsFoundByTheConfiguredList(t *testing.T) {
	cfgs := configs(t)
	nodes := []*testNode{open(t, cfgs[0]), open(t, cfgs[1]), open(t, cfgs[2])}
	_, err := leaderOf(t, nodes...).Propose(t.Context(), number(3))
	require.NoError(t, err)
	for _, n := range nodes {
		n.close(t)
	}
	moved := configs(t)
	for i := range moved {
		moved[i].Dir = cfgs[i].Dir
		nodes[i] = open(t, moved[i])
	}
	leader := leaderOf(t, nodes...)
	require.EqualValues(t, 3, leader.fsm.value())
}

// warnings collects the texts of warnings and errors.
type warnings struct {
	slog.Handler
	mu   sync.Mutex
	said []string
}

func (*warnings) Enabled(context.Context, slog.Level) bool { return true }
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler     { return w }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return nil
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
	return nil
}

func TestNoWarningAboutMembersThatAreNotInTheList(t *testing.T) {
	w := &warnings{Handler: slog.DiscardHandler}
	cfg := raftnode.Config{ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(w)}
	alone := open(t, cfg)
	leaderOf(t, alone)
	_, err := alone.Propose(t.Context(), number(1))
	require.NoError(t, err)

	list := []raftnode.Member{{ID: "jm1", Address: alone.Address()}, {ID: "jm2", Address: "127.0.0.1:1"}}
	second := open(t, raftnode.Config{ID: "jm2", Dir: t.TempDir(), Listen: "127.0.0.1:0", Logger: slog.New(w), Members: list})
	require.NoError(t, alone.Add(t.Context(), "jm2", second.Address()))
	eventually(t, "the new member follows", func() bool { return second.fsm.value() == 1 })
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, text := range w.said {
		require.NotContains(t, text, "unable to get address")
	}
}

func TestSnapshotAndLogTogetherGiveTheState(t *testing.T) {
	cfg := raftnode.Config{
		ID: "jm1", Dir: t.TempDir(), Listen: "127.0.0.1:0", SnapshotThreshold: 50, TrailingLogs: 10, SnapshotInterval: 20 * time.Millisecond,
	}
	n := open(t, cfg)
	leaderOf(t, n)
	for range 300 {
		_, err := n.Propose(t.Context(), number(1))
		require.NoError(t, err)
	}
	n.close(t)
	n = open(t, cfg)
	leaderOf(t, n)
	require.EqualValues(t, 300, n.fsm.value())
}
