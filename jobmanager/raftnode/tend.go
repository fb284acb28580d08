package raftnode

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// tend does, on the leader, what keeps the members together: one without a vote gets it when it has caught up; one that has come back
// empty loses its vote first, since it has forgotten what it voted for and what it acknowledged; and where a member is goes into the
// log. At most one change at a time, and none that would leave no majority.
func (n *Node) tend(ctx context.Context) {
	var committed, term uint64
	empty := map[string]bool{}
	n.every(ctx, 2*n.cfg.Heartbeat, func(ctx context.Context) {
		if !n.IsLeader() {
			clear(empty)
			return
		}
		reached, now := committed, n.raft.CommitIndex()
		if n.Term() != term {
			term, reached = n.Term(), 0
		}
		committed = now
		servers, err := n.Servers()
		if err != nil {
			return
		}
		answers := n.askAll(ctx, servers)
		for _, s := range servers {
			if err := n.tendTo(ctx, s, servers, answers, reached, empty); err != nil {
				if ctx.Err() == nil {
					n.logger.Warn("member not changed", "of", s.ID, "error", err)
				}
				return
			}
		}
	})
}

// tendTo looks after one member. reached is what had been committed one round ago; empty holds who was empty then.
func (n *Node) tendTo(ctx context.Context, s Server, servers []Server, answers map[string]introduction, reached uint64, empty map[string]bool) error {
	a, answered := answers[s.ID]
	was := empty[s.ID]
	delete(empty, s.ID)
	if !answered {
		return nil
	}
	id := raft.ServerID(s.ID)
	switch {
	case n.addresses.unrecorded(s.ID):
		return n.change(ctx, n.raft.AddNonvoter(id, raft.ServerAddress(s.Address), 0, 0)) // keeps a vote
	case s.Voter && !a.HasState:
		if empty[s.ID] = true; !was || !majorityWithout(servers, answers, s.ID, n.cfg.ID) {
			return nil
		}
		n.logger.Warn("member has come back without its data; it gets its vote back once it has caught up", "of", s.ID)
		return n.Demote(ctx, s.ID)
	case !s.Voter && !a.HasState:
		// That it has no vote must be committed before it hears of anything.
		if err := n.Barrier(ctx); err != nil {
			return err
		}
		_, err := n.stream.askFor(ctx, s.ID, s.Address, kindAdmit, &request{ID: s.ID, From: n.cfg.ID})
		return err
	case !s.Voter && reached > 0 && a.Applied >= reached:
		n.logger.Info("member has caught up and gets its vote", "of", s.ID, "applied", a.Applied)
		return n.change(ctx, n.raft.AddVoter(id, raft.ServerAddress(n.addresses.inLog(s.ID)), 0, 0))
	}
	return nil
}

// majorityWithout tells whether the voters other than one still have a majority among themselves.
func majorityWithout(servers []Server, answers map[string]introduction, without, self string) bool {
	voters, up := 0, 0
	for _, s := range servers {
		if !s.Voter || s.ID == without {
			continue
		}
		voters++
		if a, ok := answers[s.ID]; s.ID == self || (ok && a.HasState) {
			up++
		}
	}
	return up > voters/2
}

// askAll asks all members but this one who they are, and returns those that answer as whom they should.
func (n *Node) askAll(ctx context.Context, servers []Server) map[string]introduction {
	var (
		mu  sync.Mutex
		wg  sync.WaitGroup
		out = map[string]introduction{}
	)
	for _, s := range servers {
		if s.ID == n.cfg.ID {
			continue
		}
		wg.Go(func() {
			if a, err := n.stream.askFor(ctx, s.ID, s.Address, kindEnquiry, nil); err == nil {
				mu.Lock()
				out[s.ID] = a
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return out
}

// seekLeader lets a member that hears of no leader tell the others where it is, in case it has moved, and learn from them whether it
// has been removed.
func (n *Node) seekLeader(ctx context.Context) {
	alone := 0 // rounds without a leader
	n.every(ctx, 2*n.cfg.Heartbeat, func(ctx context.Context) {
		if !n.isAdmitted() {
			return
		}
		if n.Leader() != "" {
			alone = 0
			n.SetTrouble("removed", "")
			return
		}
		if alone++; alone < 2 {
			return
		}
		for _, m := range n.addresses.others() {
			a, err := n.stream.askFor(ctx, m.ID, m.Address, kindAnnounce, &request{ID: n.cfg.ID, Address: n.Address()})
			if err != nil || a.Leader == "" || len(a.Members) == 0 || slices.Contains(a.Members, n.cfg.ID) {
				continue
			}
			const removed = "this JobManager has been removed from the cluster; stop it, or add it again with: weir members add"
			if alone == 2 {
				n.logger.Warn(removed, "says", m.ID)
			}
			n.SetTrouble("removed", removed)
			return
		}
	})
}

func (n *Node) isAdmitted() bool {
	select {
	case <-n.admitted:
		return true
	default:
		return false
	}
}

// announced implements talk. A member is believed to have moved when it answers there, and not where it has been.
func (n *Node) announced(req request) {
	now, err := n.addresses.ServerAddr(raft.ServerID(req.ID))
	if err != nil || req.ID == n.cfg.ID || req.Address == "" || string(now) == req.Address {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), enquiryTimeout)
	defer cancel()
	answers := func(at string) bool {
		a, err := n.stream.askFor(ctx, req.ID, at, kindEnquiry, nil)
		return err == nil && a.HasState
	}
	// At the same time: where a machine is gone nobody refuses, and the question takes all the time there is.
	there := make(chan bool, 1)
	go func() { there <- answers(req.Address) }()
	if still := answers(string(now)); !<-there || still {
		return
	}
	n.addresses.move(req.ID, req.Address)
	n.logger.Info("member has moved", "of", req.ID, "from", string(now), "to", req.Address)
}

// change waits for a change of the configuration to be committed.
func (n *Node) change(ctx context.Context, f raft.Future) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return n.wait(ctx, f)
}

// changeTimeout bounds the wait for one change of the configuration.
const changeTimeout = 10 * time.Second
