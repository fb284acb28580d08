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
func (n *Node) hastenElections(context.Context) {
	var done time.Time // the contact after which the library has been told to look
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			t.Reset(max(n.hastenElection(&done), time.Millisecond))
		case <-n.done:
			return
		}
	}
}

// hastenElection has the library look if it is time, and returns when to call again. A silence is no shorter than the heartbeat timeout:
// looks are half of that apart, and the last one before it is over is at its end, so that no moment is missed.
func (n *Node) hastenElection(done *time.Time) time.Duration {
	contact := n.raft.LastContact()
	if n.raft.State() != raft.Follower || contact.IsZero() || contact.Equal(*done) {
		return n.cfg.Heartbeat / 2
	}
	if left := n.cfg.Heartbeat + time.Duration(n.rank())*n.cfg.Heartbeat/5 - time.Since(contact); left > 0 {
		return left
	}
	*done = contact
	// The library looks at once when its timeout becomes shorter.
	usual := n.raft.ReloadableConfig()
	longer := usual
	longer.HeartbeatTimeout += time.Microsecond
	longer.ElectionTimeout += time.Microsecond // which must not be shorter
	if err := errors.Join(n.raft.ReloadConfig(longer), n.raft.ReloadConfig(usual)); err != nil {
		n.logger.Warn("election not hastened", "error", err)
	}
	return n.cfg.Heartbeat / 2
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
