package raftnode

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
)

// Server is one member of the current configuration.
type Server struct {
	ID, Address string
	Voter       bool
}

// Servers returns the current configuration as this member knows it.
func (n *Node) Servers() ([]Server, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	var out []Server
	for _, s := range f.Configuration().Servers {
		out = append(out, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out, nil
}

// Add makes a member a voter, or changes its address.
func (n *Node) Add(ctx context.Context, id, address string) error {
	return n.wait(ctx, n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(address), 0, enqueueTimeout(ctx)))
}

// Remove takes a member out of the configuration.
func (n *Node) Remove(ctx context.Context, id string) error {
	return n.wait(ctx, n.raft.RemoveServer(raft.ServerID(id), 0, enqueueTimeout(ctx)))
}

// Leader returns the id of the leader, and empty when none is known.
func (n *Node) Leader() string {
	_, id := n.raft.LeaderWithID()
	return string(id)
}

// IsLeader reports whether this member believes to lead.
func (n *Node) IsLeader() bool { return n.raft.State() == raft.Leader }

// Term returns the current term.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// TransferLeadership hands the leadership to another member, for an orderly shutdown.
func (n *Node) TransferLeadership(ctx context.Context) error {
	return n.wait(ctx, n.raft.LeadershipTransfer())
}

// Stats returns the applied index, for metrics.
func (n *Node) Stats() (applied, committed, last uint64) {
	return n.raft.AppliedIndex(), n.raft.CommitIndex(), n.raft.LastIndex()
}
