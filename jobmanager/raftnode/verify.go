package raftnode

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"
)

// VerifyLeader returns nil when this member led in term at some moment after the call began, so that everything that was committed
// before the call is in its log. Otherwise the error is ErrNotLeader. It writes nothing; a lone member answers at once.
//
// A newer leader exists only when a majority has seen its term. So a majority, this member included, is asked anew which term it has
// seen. One that has lost its disk does not count. The library's own VerifyLeader does not do: an answer that was on its way when the
// call began satisfies it, and the member may have been frozen since.
func (n *Node) VerifyLeader(ctx context.Context, term uint64) error {
	if err := n.leadsIn(term); err != nil {
		return err
	}
	voters, asked := 0, 0
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	servers := n.raft.GetConfiguration().Configuration().Servers
	agrees := make(chan error, len(servers)) // room for each, since the rest is not waited for
	for _, srv := range servers {
		if srv.Suffrage != raft.Voter {
			continue
		}
		voters++
		if srv.ID == raft.ServerID(n.cfg.ID) {
			continue
		}
		asked++
		address, err := n.addresses.ServerAddr(srv.ID)
		if err != nil {
			address = srv.Address
		}
		go func() { agrees <- n.hasSeen(ctx, string(srv.ID), string(address), term) }()
	}
	missing := voters / 2 // besides itself
	var last error
	for range asked {
		if missing == 0 {
			break
		}
		if err := <-agrees; err != nil {
			last = err
		} else {
			missing--
		}
	}
	if missing > 0 {
		return fmt.Errorf("%w: no majority says so: %w", ErrNotLeader, last)
	}
	return n.leadsIn(term)
}

func (n *Node) leadsIn(term uint64) error {
	if n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
		return fmt.Errorf("%w of term %d any more", ErrNotLeader, term)
	}
	return nil
}

// hasSeen returns nil when a member has seen no later term.
func (n *Node) hasSeen(ctx context.Context, id, at string, term uint64) error {
	a, err := n.stream.askFor(ctx, id, at, kindEnquiry, nil)
	switch {
	case err != nil:
		return err
	case a.Term > term:
		return fmt.Errorf("%s has seen term %d", id, a.Term)
	case a.Term == 0: // it is starting, or has forgotten what it had seen
		return fmt.Errorf("%s does not know which term it has seen", id)
	}
	return nil
}
