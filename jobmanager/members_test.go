package jobmanager_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager"
)

func (c *cluster) membership() clusterv1.MembershipServiceClient {
	return clusterv1.NewMembershipServiceClient(dial(c.t, c.leader().cfg.Listen))
}

// listed returns the listed members that satisfy a condition, by id.
func (c *cluster) listed(which func(*clusterv1.Member) bool) []string {
	resp, err := c.membership().ListMembers(c.t.Context(), &clusterv1.ListMembersRequest{})
	if err != nil { // the leadership may have moved on
		return nil
	}
	var ids []string
	for _, m := range resp.GetMembers() {
		if which(m) {
			ids = append(ids, m.GetId())
		}
	}
	slices.Sort(ids)
	return ids
}

// change asks until it is known that the change has been made: whoever asks while the leadership moves on may have to ask again.
func change(t *testing.T, request func() error) {
	t.Helper()
	eventually(t, "the change is made", func() bool {
		err := request()
		if err != nil && !errors.Is(err, grpcerr.ErrUnknownOutcome) && !errors.Is(err, grpcerr.ErrNotLeader) {
			require.NoError(t, err)
		}
		return err == nil
	})
}

func anyMember(*clusterv1.Member) bool { return true }

func TestMembersAreAddedAndRemovedWhileAJobRuns(t *testing.T) {
	c := newCluster(t, 3)
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	id := c.submit("totals")
	goesOn := func(what string) {
		before := c.waitFor(id, "the job is there", func(*jobv1.Job) bool { return true }).GetCompletedCheckpoints()
		c.waitFor(id, what, func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() > before+1 })
	}
	goesOn("checkpoints are taken")

	// A new member is started with the list of what the cluster is to be, and waits.
	cfg := c.members[0].cfg
	cfg.DataDir, cfg.ID, cfg.RaftListen, cfg.Listen = filepath.Join(t.TempDir(), "data"), "jm4", freeAddress(t), "127.0.0.1:0"
	cfg.Members = append(slices.Clone(cfg.Members), jobmanager.Member{ID: "jm4", RaftAddress: cfg.RaftListen},
		jobmanager.Member{ID: "jm5", RaftAddress: freeAddress(t)})
	fourth := &member{t: t, cfg: cfg}
	fourth.start()
	t.Cleanup(fourth.stop)
	change(t, func() error {
		_, err := c.membership().AddMember(t.Context(), &clusterv1.AddMemberRequest{Id: "jm4", RaftAddress: cfg.RaftListen})
		return err
	})
	c.members = append(c.members, fourth)
	eventually(t, "the new member is listed with what it says of itself", func() bool {
		return slices.Equal([]string{"jm4"}, c.listed(func(m *clusterv1.Member) bool {
			return m.GetId() == "jm4" && m.GetVoter() && m.GetReachable() && m.GetAddress() == fourth.cfg.Listen
		}))
	})
	eventually(t, "the new member has the job", func() bool { return len(fourth.server.View().Jobs()) == 1 })
	goesOn("checkpoints go on with four members")

	leader := c.leader()
	i := slices.IndexFunc(c.members, func(m *member) bool { return m != leader && m != fourth })
	follower := c.members[i]
	change(t, func() error {
		_, err := c.membership().RemoveMember(t.Context(), &clusterv1.RemoveMemberRequest{Id: follower.cfg.ID})
		return err
	})
	follower.stop()
	eventually(t, "three are left", func() bool {
		ids := c.listed(anyMember)
		return len(ids) == 3 && !slices.Contains(ids, follower.cfg.ID)
	})
	goesOn("checkpoints go on without the removed member")

	// The leader may be removed as well: it hands over, and is removed by the next one. Repeating is harmless.
	remove := func() error {
		_, err := c.membership().RemoveMember(t.Context(), &clusterv1.RemoveMemberRequest{Id: leader.cfg.ID})
		return err
	}
	require.ErrorIs(t, remove(), grpcerr.ErrNotLeader)
	eventually(t, "the next leader removes it", func() bool { return remove() == nil })
	require.NotEqual(t, leader, c.leader())
	require.NoError(t, remove())
	leader.stop()
	eventually(t, "the rest goes on by itself", func() bool {
		ids := c.listed(anyMember)
		return len(ids) == 2 && !slices.Contains(ids, leader.cfg.ID)
	})
	goesOn("checkpoints go on under another leader")
}

func TestMembershipChangesAreRefusedWithTheWayOut(t *testing.T) {
	c := newCluster(t, 1)
	free := freeAddress(t)
	for name, tc := range map[string]struct {
		req  *clusterv1.AddMemberRequest
		says []string
	}{
		"no id":      {&clusterv1.AddMemberRequest{RaftAddress: free}, []string{"host:port", free}},
		"no port":    {&clusterv1.AddMemberRequest{Id: "jm2", RaftAddress: "elsewhere"}, []string{"host:port", "elsewhere"}},
		"port 0":     {&clusterv1.AddMemberRequest{Id: "jm2", RaftAddress: "h:0"}, []string{"host:port"}},
		"not there":  {&clusterv1.AddMemberRequest{Id: "jm2", RaftAddress: free}, []string{"jm2", free, "start it first"}},
		"another id": {&clusterv1.AddMemberRequest{Id: "jm2", RaftAddress: c.raftAddress("jm1")}, []string{"jm2", `calls itself "jm1"`}},
	} {
		_, err := c.membership().AddMember(t.Context(), tc.req)
		require.ErrorIs(t, err, grpcerr.ErrInvalid, name)
		for _, s := range tc.says {
			require.ErrorContains(t, err, s, name)
		}
	}
	_, err := c.membership().RemoveMember(t.Context(), &clusterv1.RemoveMemberRequest{Id: "jm9"})
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	require.ErrorContains(t, err, `no member "jm9"; see: weir members`)
	_, err = c.membership().RemoveMember(t.Context(), &clusterv1.RemoveMemberRequest{Id: "jm1"})
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
	require.ErrorContains(t, err, "only member")
	require.Equal(t, []string{"jm1"}, c.listed(anyMember))
}

// raftAddress returns the Raft address that the cluster lists for a member.
func (c *cluster) raftAddress(id string) string {
	resp, err := c.membership().ListMembers(c.t.Context(), &clusterv1.ListMembersRequest{})
	require.NoError(c.t, err)
	for _, m := range resp.GetMembers() {
		if m.GetId() == id {
			return m.GetRaftAddress()
		}
	}
	require.FailNow(c.t, "no member "+id)
	return ""
}
