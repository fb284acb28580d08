package jobmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	jobv1 "github.com/weir-stream/weir/gen/job/v1"
	"github.com/weir-stream/weir/internal/grpcerr"
	"github.com/weir-stream/weir/jobmanager"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

func TestFollowersNameTheLeader(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	for _, m := range c.members {
		if m == leader {
			continue
		}
		eventually(t, "the follower knows where the leader is", func() bool { return m.server.LeaderAddress() != "" })
		_, err := jobv1.NewJobServiceClient(dial(t, m.cfg.Listen)).ListJobs(t.Context(), &jobv1.ListJobsRequest{})
		require.ErrorIs(t, err, grpcerr.ErrNotLeader)
		var nl *grpcerr.NotLeaderError
		require.ErrorAs(t, err, &nl)
		require.Equal(t, leader.cfg.ID, nl.LeaderID)
		require.Equal(t, leader.cfg.Listen, nl.LeaderAddress)
		info := c.info(m)
		require.Equal(t, leader.cfg.ID, info.GetLeaderId())
		require.Equal(t, c.info(leader).GetClusterId(), info.GetClusterId())
	}
	members := clusterv1.NewMembershipServiceClient(dial(t, leader.cfg.Listen))
	list, err := members.ListMembers(t.Context(), &clusterv1.ListMembersRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetMembers(), 3)
	for i, m := range list.GetMembers() {
		require.True(t, m.GetReachable(), m.GetId())
		require.Equal(t, m.GetId() == leader.cfg.ID, m.GetLeader())
		require.Equal(t, c.members[i].cfg.Listen, m.GetAddress(), "also of a member that never led")
		require.EqualValues(t, fsm.Level, m.GetLevel())
	}
	eventually(t, "the log knows every member", func() bool { return len(leader.server.View().Members()) == 3 })
	for _, m := range c.members {
		if m == leader {
			continue
		}
		m.stop()
		list, err := members.ListMembers(t.Context(), &clusterv1.ListMembersRequest{})
		require.NoError(t, err)
		for _, listed := range list.GetMembers() {
			if listed.GetId() == m.cfg.ID {
				require.False(t, listed.GetReachable())
				require.Equal(t, m.cfg.Listen, listed.GetAddress(), "the log keeps where it was")
			}
		}
		break
	}
	_, err = members.RemoveMember(t.Context(), &clusterv1.RemoveMemberRequest{Id: "jm9"})
	require.ErrorIs(t, err, grpcerr.ErrInvalid)
}

func TestJobsSurviveTheirLeader(t *testing.T) {
	c := newCluster(t, 3)
	c.fakes.start("tm1", 2, c.addresses)
	c.waitForTaskManagers(1)
	id := c.submit("totals")
	before := c.waitFor(id, "a checkpoint is complete", func(j *jobv1.Job) bool { return j.GetCompletedCheckpoints() >= 2 })
	old := c.leader()
	old.stop()
	job := c.waitFor(id, "the job runs under the next leader", func(j *jobv1.Job) bool {
		return j.GetCompletedCheckpoints() > before.GetCompletedCheckpoints()+2
	})
	require.EqualValues(t, 1, job.GetAttempt())
	require.Equal(t, jobv1.JobState_JOB_STATE_RUNNING, job.GetState())
	require.Greater(t, job.GetLastCheckpoint().GetId(), before.GetLastCheckpoint().GetId())

	// A request id that the former leader accepted is known to the next one.
	require.Equal(t, id, c.submit("totals"))
	old.start()
	eventually(t, "the former leader follows", func() bool { return old.server.LeaderID() != "" && len(old.server.View().Jobs()) == 1 })
}

func TestSecondProcessOnADataDirectoryIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	cfg := c.members[0].cfg
	cfg.Listen, cfg.RaftListen = "127.0.0.1:0", "127.0.0.1:0"
	_, err := jobmanager.Start(cfg, testLogger(t))
	require.ErrorIs(t, err, raftnode.ErrInUse)
}
