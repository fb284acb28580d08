package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weir-stream/weir/internal/nodetls"
)

// join waits until an empty member may take part: because it is certain that this is a new cluster, which it then begins, or because
// the leader admits it as one without a vote. Until then it is silent. It may have been a voter that has lost its disk, and has then
// forgotten its votes and what it has acknowledged; a vote of it could bring back a leader without entries that are committed.
func (n *Node) join(ctx context.Context) {
	var said string
	for {
		why := n.newCluster(ctx)
		if why == nil {
			if why = n.bootstrap(); why == nil {
				return
			}
		}
		if why.Error() != said {
			said = why.Error()
			n.SetTrouble("join", said)
			n.logger.Info("waiting before the first start of this member", "reason", said)
		}
		select {
		case <-n.admitted:
			return
		case <-ctx.Done():
			return
		case <-time.After(bootstrapRetry):
		}
	}
}

func (n *Node) bootstrap() error {
	conf := raft.Configuration{}
	for _, m := range n.cfg.Members {
		conf.Servers = append(conf.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address),
		})
	}
	err := n.raft.BootstrapCluster(conf).Error()
	switch {
	case err == nil:
		n.logger.Info("cluster bootstrapped", "members", len(conf.Servers))
		n.letIn()
		return nil
	case errors.Is(err, raft.ErrCantBootstrap), errors.Is(err, raft.ErrRaftShutdown): // it was admitted, or it stops
		return nil
	}
	return err
}

// newCluster returns nil when every other member of the list answers that it has no state, or only that of the first start.
func (n *Node) newCluster(ctx context.Context) error {
	if !slices.ContainsFunc(n.cfg.Members, func(m Member) bool { return m.ID == n.cfg.ID }) {
		return fmt.Errorf("%s is not in the list of members; waiting to be added to a cluster", n.cfg.ID)
	}
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.ID {
			continue
		}
		a, err := n.stream.askFor(ctx, m.ID, m.Address, kindEnquiry, nil)
		switch {
		case err != nil && a.ID != "":
			return err
		case nodetls.Settled(err):
			return fmt.Errorf("member %s at %s cannot be talked to: %w", m.ID, m.Address, err)
		case err != nil:
			return fmt.Errorf("member %s at %s does not answer; all members of the list must be up once", m.ID, m.Address)
		case len(a.Listed) > 0 && !slices.Equal(a.Listed, n.listed()):
			if !a.HasState || a.Fresh {
				return fmt.Errorf("the lists of members differ: %s has %v, and %s has %v", m.ID, a.Listed, n.cfg.ID, n.listed())
			}
		}
		switch {
		case !a.HasState || a.Fresh:
		case slices.Contains(a.Members, n.cfg.ID):
			return errWiped
		default:
			return fmt.Errorf("has no data, unlike %s; add it with: weir members add %s %s", m.ID, n.cfg.ID, n.Address())
		}
	}
	return nil
}

// listed returns the ids of the configured list.
func (n *Node) listed() []string {
	var out []string
	for _, m := range n.cfg.Members {
		out = append(out, m.ID)
	}
	slices.Sort(out)
	return out
}

// introduce implements talk.
func (n *Node) introduce() introduction {
	a := introduction{
		ID: n.cfg.ID, Address: n.cfg.ServiceAddress, Level: n.cfg.Level, Listed: n.listed(), Trouble: n.Trouble(),
		HasState: true, // what is not known yet is not empty
	}
	select {
	case <-n.opened:
	default:
		return a
	}
	last, err := n.store.LastIndex()
	term := n.raft.CurrentTerm()
	a.Term, a.Applied, a.Leader = term, n.raft.AppliedIndex(), n.Leader()
	a.HasState = err != nil || last > 0 || term > 0 || a.Applied > 0
	a.Fresh = err == nil && last == 1 && term == 1
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		a.Members = append(a.Members, string(s.ID))
	}
	return a
}

// admit implements talk.
func (n *Node) admit(req request) {
	if req.ID != n.cfg.ID {
		return
	}
	select {
	case <-n.admitted:
	default:
		n.logger.Info("admitted to the cluster", "leader", req.From)
		n.letIn()
	}
}
