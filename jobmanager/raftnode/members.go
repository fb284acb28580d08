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

// Servers returns the current configuration as this member knows it, with the addresses by which it reaches the others.
func (n *Node) Servers() ([]Server, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("raft configuration: %w", err)
	}
	servers := serversOf(f.Configuration())
	for i, s := range servers {
		if at, err := n.addresses.ServerAddr(raft.ServerID(s.ID)); err == nil {
			servers[i].Address = string(at)
		}
	}
	return servers, nil
}

func serversOf(conf raft.Configuration) []Server {
	var out []Server
	for _, s := range conf.Servers {
		out = append(out, Server{ID: string(s.ID), Address: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out
}

// Add makes a member one of the cluster, at first without a vote, which the leader gives it once it has caught up; or changes the
// address of one.
func (n *Node) Add(ctx context.Context, id, address string) error {
	err := n.wait(ctx, n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(address), 0, enqueueTimeout(ctx)))
	if err == nil {
		n.addresses.move(id, address) // whatever the list says
	}
	return err
}

// Demote takes the vote from a member. It gets it back when it has caught up.
func (n *Node) Demote(ctx context.Context, id string) error {
	return n.change(ctx, n.raft.DemoteVoter(raft.ServerID(id), 0, enqueueTimeout(ctx)))
}

// Remove takes a member out of the configuration. It is refused with ErrQuorum when the rest would have no majority, and when the
// member leads: the leadership must be handed over first.
func (n *Node) Remove(ctx context.Context, id string) error {
	servers, err := n.Servers()
	if err != nil {
		return err
	}
	if id == n.cfg.ID {
		return fmt.Errorf("%w: %s leads", ErrQuorum, id)
	}
	if !majorityWithout(servers, n.askAll(ctx, servers), id, n.cfg.ID) {
		return fmt.Errorf("%w: without %s too few of the members that vote can be reached; see: weir members", ErrQuorum, id)
	}
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

// Stats returns the applied index, for metrics.
func (n *Node) Stats() (applied, committed, last uint64) {
	return n.raft.AppliedIndex(), n.raft.CommitIndex(), n.raft.LastIndex()
}
