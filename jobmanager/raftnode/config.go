package raftnode

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-stream/weir/internal/nodetls"
)

// Member is one JobManager of the cluster's first configuration.
type Member struct {
	ID string
	// Address is the host:port by which other members reach it.
	Address string
}

// Config describes a node.
type Config struct {
	// ID is this member's id, which must be in Members when Members is not empty.
	ID string
	// Dir holds log and snapshots. One process at a time may use it.
	Dir string
	// Listen is the host:port of the Raft listener; port 0 takes a free one.
	Listen string
	// Advertise is the host:port by which others reach the listener; empty takes the listener's address.
	Advertise string
	// TLS secures the listener and the connections to other members; nil for none.
	TLS *nodetls.Keeper
	// Members is the first configuration; empty means this member alone. Later it only tells the addresses of members that moved
	// while this one was down.
	Members []Member
	// ServiceAddress and Level are what this member tells others about itself, see [Node.Introduce].
	ServiceAddress string
	Level          uint32
	// Heartbeat is the time without contact after which a follower stands for election, and Election the time an election may
	// take; default 500 ms each, at least 50 ms.
	Heartbeat, Election time.Duration
	// SnapshotThreshold is the number of entries between snapshots; default 8192.
	SnapshotThreshold uint64
	// TrailingLogs is the number of entries kept behind a snapshot for members that are a little late; default 4096.
	TrailingLogs uint64
	// SnapshotInterval is how often the threshold is looked at; default 30 s.
	SnapshotInterval time.Duration
	// WriteHang is the time after which a write to the log or a vote counts as hanging; a step of writing a snapshot may take four
	// times as long; default 4 s.
	WriteHang time.Duration
	Logger    *slog.Logger
}

// Timings of the node beyond those of Config.
const (
	lockWait         = 3 * time.Second // for the lock of the data directory
	transportTimeout = 5 * time.Second
	commitTimeout    = 20 * time.Millisecond
	maxPool          = 3
	retainSnapshots  = 2
	logCacheEntries  = 256
	bootstrapRetry   = 100 * time.Millisecond
)

func (c *Config) defaults() error {
	if c.ID == "" || c.Dir == "" || c.Listen == "" {
		return fmt.Errorf("raft node needs an id, a directory and a listen address")
	}
	setDefault(&c.Heartbeat, 500*time.Millisecond)
	setDefault(&c.Election, 500*time.Millisecond)
	setDefault(&c.SnapshotInterval, 30*time.Second)
	setDefault(&c.WriteHang, 4*time.Second)
	setDefault(&c.SnapshotThreshold, 8192)
	setDefault(&c.TrailingLogs, 4096)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// storeFile is the database with the log and the votes.
const storeFile = "raft.db"
