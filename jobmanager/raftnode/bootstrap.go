package raftnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/weir-stream/weir/internal/nodetls"
)

// bootstrap waits until it is certain that this is a new cluster, and then begins it. It ends early when the node got state from
// an existing leader.
func (n *Node) bootstrap() {
	defer n.wg.Done()
	conf := raft.Configuration{}
	for _, m := range n.cfg.Members {
		conf.Servers = append(conf.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Address),
		})
	}
	var said string
	for {
		if n.raft.LastIndex() > 0 {
			return
		}
		why := n.otherMembersEmpty()
		if why == nil {
			err := n.raft.BootstrapCluster(conf).Error()
			switch {
			case err == nil:
				n.logger.Info("cluster bootstrapped", "members", len(conf.Servers))
				return
			case errors.Is(err, raft.ErrCantBootstrap), errors.Is(err, raft.ErrRaftShutdown):
				return
			}
			why = err
		}
		if why.Error() != said {
			said = why.Error()
			n.logger.Info("waiting before the first start of the cluster", "reason", said)
		}
		select {
		case <-n.done:
			return
		case <-time.After(bootstrapRetry):
		}
	}
}

// otherMembersEmpty returns nil when every other member answers that it has no state.
func (n *Node) otherMembersEmpty() error {
	for _, m := range n.cfg.Members {
		if m.ID == n.cfg.ID {
			continue
		}
		a, err := n.stream.enquire(context.Background(), m.Address)
		switch {
		case nodetls.Settled(err):
			return fmt.Errorf("member %s at %s cannot be talked to: %w", m.ID, m.Address, err)
		case err != nil:
			return fmt.Errorf("member %s at %s does not answer; all members of the list must be up once", m.ID, m.Address)
		case a.ID != m.ID:
			return fmt.Errorf("member at %s calls itself %q, the list calls it %q", m.Address, a.ID, m.ID)
		case a.HasState:
			return fmt.Errorf("member %s has state; waiting for its leader to bring this empty member up to date", m.ID)
		}
	}
	return nil
}
