package stream_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/sinks"
	"github.com/weir-stream/weir/sources"
	"github.com/weir-stream/weir/stream"
)

// txnSink is a transactional sink that is planned and never opened.
type txnSink struct {
	sinks.TwoPhaseCommitSink[int, int]
}

func TestATransactionalSinkIsRememberedWithOneSlotAtLeast(t *testing.T) {
	number := func(n int) func(sources.JobSettings) int { return func(sources.JobSettings) int { return n } }
	for name, c := range map[string]struct {
		slots func(sources.JobSettings) int
		want  int
	}{
		"unset":    {nil, 1},
		"zero":     {number(0), 1},
		"negative": {number(-3), 1},
		"more":     {number(5), 5},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := plan(func(env *stream.Env) {
				stream.To(numbers(env), "out", sinks.TwoPhase(sinks.TwoPhaseConfig[int, int]{
					Kind: "fake", Slots: c.slots,
					New: func() (sinks.TwoPhaseCommitSink[int, int], error) { return txnSink{}, nil },
				}))
			})
			require.NoError(t, err)
			out := findOperator(t, p, "out")
			require.Equal(t, graph.ExactlyOnce, out.Guarantee)
			require.Equal(t, c.want, out.TransactionSlots)
		})
	}
}
