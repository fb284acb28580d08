package kafkasink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sinks/kafka/slots"
)

// A transaction that is open in a partition and has ended for its coordinator is nobody's to end: no checkpoint will.
func TestATransactionThatHangsIsNotLeftToItsJob(t *testing.T) {
	place := sinks.Context{ClusterID: "c", JobID: "j", UID: "out", Attempt: 2}
	s := &transactional[string]{place: place, ids: slots.NewScheme("weir", place)}
	id := s.ids.ID(2, 0, 1)
	for state, ends := range map[string]string{
		"Ongoing":        "its commit after the next completed checkpoint",
		"PrepareCommit":  "its commit after the next completed checkpoint",
		"CompleteCommit": "find-hanging",
		"CompleteAbort":  "find-hanging",
		"Empty":          "find-hanging",
	} {
		h := sinks.Held{Transaction: id, Left: -1}
		s.attribute(&h, 7, state)
		require.True(t, h.Current, state)
		require.Contains(t, h.Ends, ends, state)
	}
}
