package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	disk      *disk
	watch     *watch
	stream    *streamLayer
	transport *raft.NetworkTransport
	addresses *addresses

	opened   chan struct{} // closed when raft is set
	admitted chan struct{} // closed when this member may take part
	admitOne sync.Once

	mu       sync.Mutex
	troubles map[string]string

	leadership chan bool
	fatal      chan error
	closing    <-chan struct{} // closed when Shutdown begins
	close      context.CancelFunc
	done       chan struct{} // closed when raft has stopped
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
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{
		cfg: cfg, logger: cfg.Logger, watch: newWatch(), troubles: map[string]string{},
		opened: make(chan struct{}), admitted: make(chan struct{}),
		leadership: make(chan bool, 1), fatal: make(chan error, 1), closing: ctx.Done(), close: cancel, done: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			cancel()
			n.closeFiles()
		}
	}()
	if n.store, err = openStore(cfg.Dir); err != nil {
		return nil, err
	}
	if err := removeLeftovers(cfg.Dir); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	hl := newHCLogger(cfg.Logger)
	files, err := raft.NewFileSnapshotStoreWithLogger(cfg.Dir, retainSnapshots, hl)
	if err != nil {
		return nil, fmt.Errorf("snapshot store: %w", err)
	}
	hadState, err := raft.HasExistingState(n.store, n.store, files)
	if err != nil {
		return nil, fmt.Errorf("look for state in %s: %w", cfg.Dir, err)
	}
	n.stream, err = newStreamLayer(cfg.Listen, cfg.Advertise, cfg.TLS, n, cfg.Logger)
	if err != nil {
		return nil, err
	}
	if len(cfg.Members) == 0 {
		n.cfg.Members = []Member{{ID: cfg.ID, Address: n.Address()}}
	}
	n.addresses = newAddresses(n.cfg.ID, n.Address(), cfg.Members)
	n.disk = &disk{
		LogStore: n.store, stable: n.store, dir: cfg.Dir, watch: n.watch, logger: cfg.Logger, start: time.Now(), closing: n.closing,
		leads: n.leads, silence: n.stream.silence, speak: n.stream.speak, giveUp: n.giveUp,
		trouble: func(text string) { n.SetTrouble("disk", text) },
	}
	cache, err := raft.NewLogCache(logCacheEntries, n.disk)
	if err != nil {
		return nil, err
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: n.addresses, Logger: hl, Stream: n.stream, MaxPool: maxPool, Timeout: transportTimeout,
	})
	n.raft, err = raft.NewRaft(n.raftConfig(), machine{fsm, n.watch}, cache, n.disk, snapshots{files, n.watch}, n.transport)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	n.addresses.follow(n.raft)
	close(n.opened)
	if hadState {
		n.letIn()
	}
	n.run(ctx, n.relayLeadership, n.watchHangs, n.checkLeader, n.hastenElections, n.tend, n.seekLeader)
	if !hadState {
		n.run(ctx, n.join)
	}
	return n, nil
}

// run starts loops, whose context ends when Shutdown begins.
func (n *Node) run(ctx context.Context, loops ...func(context.Context)) {
	for _, f := range loops {
		n.wg.Go(func() { f(ctx) })
	}
}

// openStore opens or makes the database of a data directory.
func openStore(dir string) (*raftboltdb.BoltStore, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("raft directory: %w", err)
	}
	path := filepath.Join(dir, storeFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Without the database the member has forgotten its votes and what it has acknowledged.
		if found, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*-*")); len(found) > 0 {
			return nil, fmt.Errorf("%w: %s has snapshots and no %s: bring the file back, or empty the directory and let the member join anew",
				ErrDamaged, dir, storeFile)
		}
	}
	store, err := raftboltdb.New(raftboltdb.Options{
		Path: path,
		BoltOptions: &bbolt.Options{
			Timeout: lockWait, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType,
		},
		MsgpackUseNewTimeFormat: true,
	})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
	case err != nil:
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return store, nil
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

// leads is IsLeader for the disk, which works before raft is known.
func (n *Node) leads() bool {
	select {
	case <-n.opened:
		return n.IsLeader()
	default:
		return false
	}
}

// letIn lets the member take part.
func (n *Node) letIn() {
	n.admitOne.Do(func() {
		close(n.admitted)
		n.SetTrouble("join", "")
		n.stream.speak()
	})
}

// relayLeadership passes changes on; a change that nobody has taken yet is replaced by the newer one.
func (n *Node) relayLeadership(context.Context) {
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

// every calls f at each tick until raft has stopped.
func (n *Node) every(ctx context.Context, d time.Duration, f func(ctx context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			f(ctx)
		case <-n.done:
			return
		}
	}
}

// SetTrouble takes note of trouble of some kind, or with an empty text that it is over, and reports whether that is news. A member with
// trouble is not handed the leadership.
func (n *Node) SetTrouble(kind, text string) (news bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	news = n.troubles[kind] != text
	if text == "" {
		delete(n.troubles, kind)
	} else {
		n.troubles[kind] = text
	}
	return news
}

// Trouble tells why this member does not take part, or may not be able to soon; empty when all is well.
func (n *Node) Trouble() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Values(n.troubles)), "; ")
}

// Leadership delivers true when this member became the leader and false when it stopped being it. Only the newest change is kept:
// true twice in a row is a leadership lost and won again.
func (n *Node) Leadership() <-chan bool { return n.leadership }

// Fatal delivers at most one error after which the process must exit at once, without waiting for Shutdown. The member has left the
// network by then.
func (n *Node) Fatal() <-chan error { return n.fatal }

// Address returns the host:port by which other members reach this one.
func (n *Node) Address() string { return n.stream.advertise.String() }

// Shutdown stops the member, for at most as long as ctx lasts. It is safe to call it again.
func (n *Node) Shutdown(ctx context.Context) error {
	n.stop.Do(func() {
		n.close()
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
