package raftnode

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

// Recovery is what a data directory holds.
type Recovery struct {
	// Last and Term are the position and the term of the last entry of the log. Of several survivors the one with the higher term
	// knows most, and with equal terms the one with the higher position.
	Last, Term uint64
	// Members are those of its last configuration.
	Members []Server
}

// Inspect reads what the data directory of a member that does not run holds, and brings fsm, which must be empty, to the end of the
// log, committed or not.
func Inspect(dir string, fsm raft.FSM) (Recovery, error) { return recovery(dir, fsm, nil) }

// Recover makes the member that a data directory belongs to the only one of its cluster, so that it can go on after a majority has
// been lost for good. The member must not run. Everything in its log counts as committed afterwards, and what only the lost members
// had is gone; the others must come back empty. fsm is used up.
func Recover(dir string, self Member, fsm raft.FSM) (Recovery, error) {
	return recovery(dir, nil, func(rc *raft.Config, d directory) error {
		rc.LocalID = raft.ServerID(self.ID)
		_, transport := raft.NewInmemTransport(raft.ServerAddress(self.Address))
		defer transport.Close()
		return raft.RecoverCluster(rc, fsm, d.store, d.store, d.snapshots, transport, raft.Configuration{Servers: []raft.Server{
			{Suffrage: raft.Voter, ID: rc.LocalID, Address: raft.ServerAddress(self.Address)},
		}})
	})
}

type logAndVotes interface {
	raft.LogStore
	raft.StableStore
}

type directory struct {
	store     logAndVotes
	snapshots raft.SnapshotStore
}

func recovery(dir string, replay raft.FSM, act func(*raft.Config, directory) error) (Recovery, error) {
	var r Recovery
	if _, err := os.Stat(filepath.Join(dir, storeFile)); err != nil {
		return r, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	store, err := openStore(dir)
	if err != nil {
		return r, err
	}
	defer store.Close()
	rc := raft.DefaultConfig()
	rc.Logger = newHCLogger(slog.New(slog.DiscardHandler))
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, retainSnapshots, rc.Logger)
	if err != nil {
		return r, fmt.Errorf("snapshot store: %w", err)
	}
	if r, err = inspect(store, files, replay); err != nil || act == nil {
		return r, err
	}
	return r, act(rc, directory{store, files})
}

func inspect(store raft.LogStore, files raft.SnapshotStore, fsm raft.FSM) (Recovery, error) {
	var r Recovery
	metas, err := files.List()
	if err != nil {
		return r, fmt.Errorf("snapshots: %w", err)
	}
	var conf raft.Configuration
	if len(metas) > 0 {
		r.Last, r.Term, conf = metas[0].Index, metas[0].Term, metas[0].Configuration
		if fsm != nil {
			_, content, err := files.Open(metas[0].ID)
			if err != nil {
				return r, fmt.Errorf("snapshot %s: %w", metas[0].ID, err)
			}
			if err := fsm.Restore(content); err != nil {
				return r, fmt.Errorf("snapshot %s: %w", metas[0].ID, err)
			}
		}
	}
	first, err := store.FirstIndex()
	if err != nil {
		return r, fmt.Errorf("log: %w", err)
	}
	last, err := store.LastIndex()
	if err != nil {
		return r, fmt.Errorf("log: %w", err)
	}
	for i := first; i <= last && i > 0; i++ {
		var entry raft.Log
		if err := store.GetLog(i, &entry); err != nil {
			return r, fmt.Errorf("log entry %d: %w", i, err)
		}
		if i <= r.Last {
			continue
		}
		r.Last, r.Term = i, entry.Term
		if entry.Type == raft.LogCommand && fsm != nil {
			fsm.Apply(&entry)
		}
		if entry.Type == raft.LogConfiguration {
			conf = raft.DecodeConfiguration(entry.Data)
		}
	}
	if r.Last == 0 {
		return r, fmt.Errorf("%w: there is no state in it", ErrDamaged)
	}
	r.Members = serversOf(conf)
	return r, nil
}
