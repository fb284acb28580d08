package rpc

import (
	"context"
	"net"
	"sync"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/internal/version"
	"github.com/weir-stream/weir/jobmanager/fsm"
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
	l, err := s.cluster.Leader()
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
			m.Reachable = err == nil
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

// AddMember implements clusterv1.MembershipServiceServer.
func (s *Services) AddMember(ctx context.Context, req *clusterv1.AddMemberRequest) (*clusterv1.AddMemberResponse, error) {
	if _, err := s.cluster.Leader(); err != nil {
		return nil, err
	}
	if _, port, err := net.SplitHostPort(req.GetRaftAddress()); err != nil || port == "0" || req.GetId() == "" {
		return nil, invalid("a member is added by its id and its Raft address host:port, not %q and %q", req.GetId(), req.GetRaftAddress())
	}
	// A member that is not there would count for the majority at once.
	if _, err := s.cluster.Members().Introduce(ctx, req.GetId(), req.GetRaftAddress()); err != nil {
		return nil, invalid("JobManager %s does not answer at %s; start it first, with all members and itself in its list: %v",
			req.GetId(), req.GetRaftAddress(), err)
	}
	if err := s.cluster.Members().Add(ctx, req.GetId(), req.GetRaftAddress()); err != nil {
		return nil, mapped(err)
	}
	s.logger.Info("member added", "member", req.GetId(), "address", req.GetRaftAddress())
	return &clusterv1.AddMemberResponse{}, nil
}

// RemoveMember implements clusterv1.MembershipServiceServer.
func (s *Services) RemoveMember(ctx context.Context, req *clusterv1.RemoveMemberRequest) (*clusterv1.RemoveMemberResponse, error) {
	if _, err := s.cluster.Leader(); err != nil {
		return nil, err
	}
	servers, err := s.cluster.Members().Servers()
	if err != nil {
		return nil, err
	}
	found, voters := false, 0
	for _, srv := range servers {
		found = found || srv.ID == req.GetId()
		if srv.Voter {
			voters++
		}
	}
	switch {
	case !found:
		return nil, invalid("there is no member %q; see: weir members", req.GetId())
	case voters == 1:
		return nil, invalid("%q is the only member", req.GetId())
	}
	if err := s.cluster.Members().Remove(ctx, req.GetId()); err != nil {
		return nil, mapped(err)
	}
	s.logger.Info("member removed", "member", req.GetId())
	return &clusterv1.RemoveMemberResponse{}, nil
}
