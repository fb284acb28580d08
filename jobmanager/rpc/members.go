package rpc

import (
	"context"
	"net"
	"slices"
	"sync"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

// GetInfo implements clusterv1.MembershipServiceServer. Every member answers for itself.
func (s *Services) GetInfo(context.Context, *clusterv1.GetInfoRequest) (*clusterv1.GetInfoResponse, error) {
	return &clusterv1.GetInfoResponse{
		Id: s.cluster.ID(), ClusterId: s.cluster.View().ClusterID(), Version: version.Version, Term: s.cluster.Term(),
		LeaderId: s.cluster.LeaderID(), LeaderAddress: s.cluster.LeaderAddress(),
		ProtocolMin: version.ProtocolMin, ProtocolMax: version.ProtocolMax, Level: fsm.Level,
	}, nil
}

// ListMembers implements clusterv1.MembershipServiceServer.
func (s *Services) ListMembers(ctx context.Context, _ *clusterv1.ListMembersRequest) (*clusterv1.ListMembersResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := s.cluster.Members().Servers()
	if err != nil {
		return nil, err
	}
	resp := &clusterv1.ListMembersResponse{ClusterId: l.ClusterID, Term: l.Term}
	var wg sync.WaitGroup
	for _, srv := range servers {
		m := &clusterv1.Member{Id: srv.ID, RaftAddress: srv.Address, Voter: srv.Voter, Leader: srv.ID == s.cluster.ID()}
		for _, known := range l.Log.View().Members() {
			if known.GetId() == srv.ID {
				m.Address, m.Level = known.GetAddress(), known.GetLevel()
			}
		}
		resp.Members = append(resp.Members, m)
		if m.GetLeader() {
			m.Reachable = true
			continue
		}
		wg.Go(func() {
			said, err := s.cluster.Members().Introduce(ctx, srv.ID, srv.Address)
			switch m.Reachable, m.Trouble = err == nil, said.Trouble; {
			case err != nil:
				m.Trouble = "does not answer: " + err.Error()
			case said.Empty && said.Trouble == "": // it has only just been started
				m.Trouble = "has no data yet"
			}
			if said.ServiceAddress != "" {
				m.Address, m.Level = said.ServiceAddress, said.Level
			}
		})
	}
	wg.Wait()
	for _, tm := range l.Registry.TaskManagers() {
		resp.Taskmanagers = append(resp.Taskmanagers, &clusterv1.TaskManager{
			Id: tm.ID, Host: tm.Host, Slots: uint32(tm.Slots), FreeSlots: uint32(max(0, tm.FreeSlots)), Version: tm.Version,
			LastSeenMs: uint64(tm.LastSeen.Milliseconds()),
		})
	}
	return resp, nil
}

// AddMember implements clusterv1.MembershipServiceServer. The member is added without a vote, which the leader gives it when it has
// caught up, so that one that is not what it should be does not count for the majority.
func (s *Services) AddMember(ctx context.Context, req *clusterv1.AddMemberRequest) (*clusterv1.AddMemberResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	members := s.cluster.Members()
	servers, err := members.Servers()
	if err != nil {
		return nil, err
	}
	id, address := req.GetId(), req.GetRaftAddress()
	i := slices.IndexFunc(servers, func(m raftnode.Server) bool { return m.ID == id })
	if req.GetReplace() {
		if i < 0 {
			return nil, invalid("there is no member %q to be replaced; see: weir members", id)
		}
		if address == "" {
			address = servers[i].Address
		}
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" || id == "" {
		return nil, invalid("a member is added by its id and its Raft address host:port, not %q and %q", id, address)
	}
	said, err := s.cluster.Members().Introduce(ctx, id, address)
	if err != nil {
		return nil, invalid("JobManager %s does not answer at %s; start it first, with all members and itself in its list: %v", id, address, err)
	}
	if level := Level(servers, l.Log.View()); said.Level < level {
		return nil, invalid("JobManager %s is too old: it understands commands up to level %d, and the cluster uses level %d; upgrade it first",
			id, said.Level, level)
	}
	if j := slices.IndexFunc(servers, func(m raftnode.Server) bool { return m.Address == address }); j >= 0 && j != i {
		return nil, invalid("%s is the Raft address of member %s", address, servers[j].ID)
	}
	if i >= 0 {
		if done, err := s.changeMember(ctx, servers[i], address, said, req.GetReplace()); done || err != nil {
			return &clusterv1.AddMemberResponse{}, err
		}
	}
	if err := members.Add(ctx, id, address); err != nil {
		return nil, mapped(err)
	}
	s.logger.Info("member added", "of", id, "address", address)
	return &clusterv1.AddMemberResponse{}, nil
}

// changeMember prepares a present member for another address or another disk; done when there is nothing left to do.
func (s *Services) changeMember(ctx context.Context, present raftnode.Server, address string, said raftnode.Introduction, replace bool) (done bool, _ error) {
	switch {
	case present.Address == address && (!replace || !present.Voter):
		return true, nil
	case replace && !said.Empty:
		return false, invalid("JobManager %s at %s has data, so there is nothing to be replaced; stop it and empty its data directory first",
			present.ID, address)
	case present.Address != address:
		if _, err := s.cluster.Members().Introduce(ctx, present.ID, present.Address); err == nil {
			return false, invalid("JobManager %s still answers at %s; stop it there first", present.ID, present.Address)
		}
	}
	if present.Voter && said.Empty {
		// It has forgotten what it voted for.
		if err := s.cluster.Members().Demote(ctx, present.ID); err != nil {
			return false, mapped(err)
		}
	}
	return present.Address == address, nil
}

// RemoveMember implements clusterv1.MembershipServiceServer. The leader hands over before it is removed: the new one is asked again.
func (s *Services) RemoveMember(ctx context.Context, req *clusterv1.RemoveMemberRequest) (*clusterv1.RemoveMemberResponse, error) {
	l, err := s.leader(ctx)
	if err != nil {
		return nil, err
	}
	members := s.cluster.Members()
	servers, err := members.Servers()
	if err != nil {
		return nil, err
	}
	id := req.GetId()
	voters := 0
	for _, srv := range servers {
		if srv.Voter {
			voters++
		}
	}
	i := slices.IndexFunc(servers, func(m raftnode.Server) bool { return m.ID == id })
	switch {
	case i < 0 && slices.ContainsFunc(l.Log.View().Members(), func(m *raftv1.MemberLevel) bool { return m.GetId() == id }):
		return &clusterv1.RemoveMemberResponse{}, nil // was one
	case i < 0:
		return nil, invalid("there is no member %q; see: weir members", id)
	case voters == 1 && servers[i].Voter:
		return nil, invalid("%q is the only member that votes", id)
	case id == s.cluster.ID():
		if err := members.TransferLeadership(ctx); err != nil {
			return nil, invalid("%s leads, and no other member takes over: %v", id, err)
		}
		return nil, &grpcerr.NotLeaderError{}
	}
	if err := members.Remove(ctx, id); err != nil {
		return nil, mapped(err)
	}
	s.logger.Info("member removed", "of", id)
	return &clusterv1.RemoveMemberResponse{}, nil
}

// Level returns the command level that every member of the cluster understands. One that has not said yet understands what the first
// program did.
func Level(servers []raftnode.Server, view fsm.View) uint32 {
	level := uint32(fsm.Level)
	for _, srv := range servers {
		of := uint32(fsm.FirstLevel)
		for _, m := range view.Members() {
			if m.GetId() == srv.ID {
				of = m.GetLevel()
			}
		}
		level = min(level, of)
	}
	return level
}
