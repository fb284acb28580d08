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
