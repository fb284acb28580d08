package rpc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	raftv1 "github.com/weir-stream/weir/gen/raft/v1"
	"github.com/weir-stream/weir/jobmanager/fsm"
	"github.com/weir-stream/weir/jobmanager/raftnode"
	"github.com/weir-stream/weir/jobmanager/rpc"
)

func TestLevelIsThatOfTheOldestMember(t *testing.T) {
	var s fsm.State
	record := func(id string, level uint32) {
		res := s.Apply(1, &raftv1.Command{Command: &raftv1.Command_MemberLevel{MemberLevel: &raftv1.MemberLevel{Id: id, Level: level}}})
		require.NoError(t, res.Err)
	}
	members := []raftnode.Server{{ID: "jm1"}, {ID: "jm2"}}
	require.EqualValues(t, fsm.FirstLevel, rpc.Level(members, s.View()), "nobody has said")
	record("jm1", fsm.Level+5)
	record("jm2", fsm.FirstLevel-1)
	require.EqualValues(t, fsm.FirstLevel-1, rpc.Level(members, s.View()))
	record("jm2", fsm.Level+2)
	require.EqualValues(t, fsm.Level, rpc.Level(members, s.View()), "this program is one of them")
	record("gone", 1)
	require.EqualValues(t, fsm.Level, rpc.Level(members, s.View()), "a member that was removed does not count")
}
