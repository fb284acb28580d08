package slots_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

func TestTransactionalIDs(t *testing.T) {
	sc := sinks.Context{ClusterID: "c", JobID: "j", UID: "out"}
	require.Equal(t, "weir.c.j.out.3.1.0", slots.NewScheme("weir", sc).ID(3, 1, 0))
	sc.UID = strings.Repeat("x", 300)
	long := slots.NewScheme("weir", sc).ID(3, 1, 0)
	require.Less(t, len(long), 100)
	require.True(t, strings.HasPrefix(long, "weir."))
	require.True(t, strings.HasSuffix(long, ".3.1.0"))
	sc.UID += "y"
	require.NotEqual(t, long, slots.NewScheme("weir", sc).ID(3, 1, 0))
}

func TestShareOfFormerIDs(t *testing.T) {
	s := slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "j", UID: "u"})
	all := map[string]int{}
	for subtask := range 2 {
		for _, id := range s.Share(operator.Scope{
			Subtask: subtask, Parallelism: 2, Attempts: []operator.FormerAttempt{{Attempt: 1, Parallelism: 5, Slots: 3}, {Attempt: 2, Parallelism: 1, Slots: 2}},
		}) {
			all[id]++
		}
	}
	require.Len(t, all, 5*3+1*2)
	for id, n := range all {
		require.Equal(t, 1, n, id)
	}
}

func TestIDsAreTakenApart(t *testing.T) {
	s := slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "j", UID: "out.1"})
	attempt, subtask, slot, ok := s.Parse(s.ID(12, 3, 4))
	require.True(t, ok)
	require.Equal(t, []int{12, 3, 4}, []int{int(attempt), subtask, slot})
	job, ok := s.Job(slots.NewScheme("weir", sinks.Context{ClusterID: "c", JobID: "other", UID: "a.b"}).ID(1, 2, 3))
	require.True(t, ok)
	require.Equal(t, "other", job)
	for _, foreign := range []string{"", "mine", "weir.c.j.out.1", "weir.c.j.out.1.1.2", "weir.c.j.out.1.1.2.3.4", "weir.c.j.out.1.1.x.3", "weir.c.j.out.1.1.-2.3", "weir.c.j.out.10.1.2.3"} {
		_, _, _, ok := s.Parse(foreign)
		require.False(t, ok, foreign)
	}
	for _, foreign := range []string{"", "weir.d.j.u.1.2.3", "weir.c.", "other.c.j.u.1.2.3", "weir.c.0123456789abcdef.1"} {
		_, ok := s.Job(foreign)
		require.False(t, ok, foreign)
	}
}
