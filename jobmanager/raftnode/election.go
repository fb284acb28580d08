package raftnode

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// hastenElections makes a follower notice the silence of its leader when it is as long as the heartbeat timeout. The library looks at
// random times between one and two timeouts apart, so that it may take three; and since a member grants no pre-vote while it
// believes in a leader, an election begins only when the last voter needed has noticed. The order of the ids keeps the voters from
// standing for election in the same instant, which would split the votes.
func (n *Node) hastenElections(ctx context.Context) {
	var done time.Time // the contact after which the library has been told to look
	n.every(ctx, max(n.cfg.Heartbeat/25, time.Millisecond), func(context.Context) {
		if n.raft.State() != raft.Follower {
			return
		}
		contact := n.raft.LastContact()
		if contact.IsZero() || contact.Equal(done) || time.Since(contact) < n.cfg.Heartbeat+time.Duration(n.rank())*n.cfg.Heartbeat/5 {
			return
		}
		done = contact
		// The library looks at once when its timeout becomes shorter.
		usual := n.raft.ReloadableConfig()
		longer := usual
		longer.HeartbeatTimeout += time.Microsecond
		longer.ElectionTimeout += time.Microsecond // which must not be shorter
		if err := errors.Join(n.raft.ReloadConfig(longer), n.raft.ReloadConfig(usual)); err != nil {
			n.logger.Warn("election not hastened", "error", err)
		}
	})
}

// rank is this member's place among the voters that may follow the leader.
func (n *Node) rank() int {
	leader := n.Leader()
	var ids []string
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter && string(s.ID) != leader {
			ids = append(ids, string(s.ID))
		}
	}
	slices.SortFunc(ids, strings.Compare)
	return max(0, slices.Index(ids, n.cfg.ID))
}

// TransferLeadership hands the leadership to the member that has come furthest of those that answer.
func (n *Node) TransferLeadership(ctx context.Context) error {
	servers, err := n.Servers()
	if err != nil {
		return err
	}
	brief, cancel := context.WithTimeout(ctx, n.cfg.Heartbeat) // one that is silent for so long is no successor
	answers := n.askAll(brief, servers)
	cancel()
	servers = slices.DeleteFunc(servers, func(s Server) bool {
		a, ok := answers[s.ID]
		return !s.Voter || !ok || a.Trouble != ""
	})
	if len(servers) == 0 {
		return ErrNoSuccessor
	}
	slices.SortStableFunc(servers, func(a, b Server) int {
		return int(int64(answers[b.ID].Applied) - int64(answers[a.ID].Applied))
	})
	for _, s := range servers {
		err = n.wait(ctx, n.raft.LeadershipTransferToServer(raft.ServerID(s.ID), raft.ServerAddress(s.Address)))
		if err == nil || ctx.Err() != nil || !n.IsLeader() {
			return err
		}
	}
	return err
}
