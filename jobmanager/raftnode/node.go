package raftnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Node is a running Raft member.
type Node struct {
	cfg       Config
	logger    *slog.Logger
	raft      *raft.Raft
	store     *raftboltdb.BoltStore
	watched   *watchedStore
	stream    *streamLayer
	transport *raft.NetworkTransport

	// moved is the configured list of members, which may tell new addresses.
	moved  []Member
	opened chan struct{} // closed when raft is set

	leadership chan bool
	fatal      chan error
	done       chan struct{}
	wg         sync.WaitGroup
	stop       sync.Once
	stopped    error
}

// Open starts a member over the state in cfg.Dir. It returns ErrInUse within a few seconds when another process has the
// directory open.
func Open(cfg Config, fsm raft.FSM) (_ *Node, err error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	n := &Node{
		cfg: cfg, logger: cfg.Logger, moved: cfg.Members, opened: make(chan struct{}),
		leadership: make(chan bool, 1), fatal: make(chan error, 1), done: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			n.closeFiles()
		}
	}()
	n.store, err = raftboltdb.New(raftboltdb.Options{
		Path: cfg.storePath(),
		BoltOptions: &bbolt.Options{
			Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%s: %w", cfg.Dir, ErrInUse)
	} else if err != nil {
		return nil, fmt.Errorf("open %s: %w", cfg.storePath(), err)
	}
	n.watched = newWatchedStore(n.store)
	cache, err := raft.NewLogCache(logCacheEntries, n.watched)
	if err != nil {
		return nil, err
	}
	hl := newHCLogger(cfg.Logger)
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, retainSnapshots, hl)
	if err != nil {
		return nil, fmt.Errorf("snapshot store: %w", err)
	}
	hadState, err := raft.HasExistingState(cache, n.store, snapshots)
	if err != nil {
		return nil, fmt.Errorf("look for state in %s: %w", cfg.Dir, err)
	}
	n.stream, err = newStreamLayer(cfg.Listen, cfg.Advertise, cfg.TLS, n.answerEnquiry(hadState), cfg.Logger)
	if err != nil {
		return nil, err
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addresses{n}, Logger: hl, Stream: n.stream, MaxPool: maxPool, Timeout: transportTimeout,
	})
	n.raft, err = raft.NewRaft(n.raftConfig(), fsm, cache, n.store, snapshots, n.transport)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	close(n.opened)
	n.wg.Add(2)
	go n.relayLeadership()
	go n.watchWrites()
	if len(cfg.Members) == 0 {
		n.cfg.Members = []Member{{ID: cfg.ID, Address: n.Address()}}
	}
	if !hadState && n.listed() {
		n.wg.Add(1)
		go n.bootstrap()
	}
	return n, nil
}

func (n *Node) raftConfig() *raft.Config {
	rc := raft.DefaultConfig()
	rc.LocalID = raft.ServerID(n.cfg.ID)
	rc.Logger = newHCLogger(n.cfg.Logger)
	rc.HeartbeatTimeout = n.cfg.Heartbeat
	rc.ElectionTimeout = n.cfg.Election
	rc.LeaderLeaseTimeout = n.cfg.Heartbeat
	rc.CommitTimeout = min(commitTimeout, n.cfg.Heartbeat/4)
	rc.SnapshotThreshold = n.cfg.SnapshotThreshold
	rc.SnapshotInterval = n.cfg.SnapshotInterval
	rc.TrailingLogs = n.cfg.TrailingLogs
	rc.NoLegacyTelemetry = true
	rc.ShutdownOnRemove = false
	return rc
}

func (n *Node) listed() bool {
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.ID {
			return true
		}
	}
	return false
}

// answerEnquiry tells whether this member has state; once raft runs, also when state came in meanwhile.
func (n *Node) answerEnquiry(hadState bool) func() enquiryAnswer {
	last := func() uint64 {
		i, err := n.store.LastIndex()
		if err != nil {
			return 1 // unreadable is not empty
		}
		return i
	}
	return func() enquiryAnswer {
		a := enquiryAnswer{ID: n.cfg.ID, HasState: hadState || last() > 0, Address: n.cfg.ServiceAddress, Level: n.cfg.Level}
		select {
		case <-n.opened:
			a.Term = n.raft.CurrentTerm()
		default:
		}
		return a
	}
}

// addresses overrides the addresses in the log by those of the configured list, so that members can move. A member that is not in the
// list was added later.
type addresses struct{ n *Node }

var _ raft.ServerAddressProvider = addresses{}

// ServerAddr implements raft.ServerAddressProvider.
func (a addresses) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	n := a.n
	for _, m := range n.moved {
		if m.ID == string(id) {
			return raft.ServerAddress(m.Address), nil
		}
	}
	if string(id) == n.cfg.ID {
		return raft.ServerAddress(n.Address()), nil
	}
	select {
	case <-n.opened:
	default:
		return "", fmt.Errorf("address of member %s: %w", id, errStarting)
	}
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return s.Address, nil
		}
	}
	return "", fmt.Errorf("member %s is neither configured nor in the cluster", id)
}

// relayLeadership passes changes on; a change that nobody has taken yet is replaced by the newer one.
func (n *Node) relayLeadership() {
	defer n.wg.Done()
	for {
		select {
		case leads := <-n.raft.LeaderCh():
			select {
			case <-n.leadership:
			default:
			}
			n.leadership <- leads
		case <-n.done:
			return
		}
	}
}

// watchWrites reports a hanging log write. The library's main loop is stuck in it then, while its heartbeats would go on.
func (n *Node) watchWrites() {
	defer n.wg.Done()
	t := time.NewTicker(n.cfg.WriteHang / 5)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if d := n.watched.running(); d > n.cfg.WriteHang {
				n.fatal <- fmt.Errorf("%w: %s, for %s", ErrLogHangs, filepath.Clean(n.cfg.Dir), d.Round(time.Millisecond))
				return
			}
		case <-n.done:
			return
		}
	}
}

// Leadership delivers true when this member became the leader and false when it stopped being it. Only the newest change is kept:
// true twice in a row is a leadership lost and won again.
func (n *Node) Leadership() <-chan bool { return n.leadership }

// Fatal delivers at most one error after which the process must exit at once, without waiting for Shutdown.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Address returns the host:port by which other members reach this one.
func (n *Node) Address() string { return n.stream.advertise.String() }

// Shutdown stops the member, for at most as long as ctx lasts. It is safe to call it again.
func (n *Node) Shutdown(ctx context.Context) error {
	n.stop.Do(func() {
		finished := make(chan error, 1) // whether or not anybody still waits
		go func() {
			err := n.raft.Shutdown().Error()
			close(n.done)
			n.wg.Wait()
			n.closeFiles()
			finished <- err
		}()
		select {
		case n.stopped = <-finished:
		case <-ctx.Done():
			n.stopped = fmt.Errorf("raft did not stop in time: %w", ctx.Err())
		}
	})
	return n.stopped
}

func (n *Node) closeFiles() {
	if n.transport != nil {
		_ = n.transport.Close()
		n.transport.CloseStreams()
	}
	if n.stream != nil {
		_ = n.stream.Close()
		n.stream.wait()
	}
	if n.store != nil {
		_ = n.store.Close()
	}
}
