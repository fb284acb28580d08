package jobmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	clusterv1 "github.com/weir-stream/weir/gen/cluster/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
)

func TestCommandThatAMemberDoesNotKnowIsNotProposed(t *testing.T) {
	c := newCluster(t, 3)
	eventually(t, "the levels are known", func() bool {
		return len(c.listed(func(m *clusterv1.Member) bool { return m.GetLevel() == fsm.Level })) == 3
	})
	leader := c.leader().server
	eventually(t, "the log has them", func() bool { return leader.Understood(fsm.Level) == nil })
	err := leader.Understood(fsm.Level + 1)
	require.ErrorIs(t, err, raftnode.ErrNotLeader, "certainly not in the log")
	require.ErrorContains(t, err, "upgrade all JobManagers")
}
