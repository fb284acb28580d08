package printsink_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
	printsink "github.com/weir-stream/weir/sinks/print"
)

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

type broken struct{}

var errBroken = errors.New("broken pipe")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestPrintsALinePerRecord(t *testing.T) {
	var out bytes.Buffer
	sink := printsink.New[string](printsink.To(&out), printsink.Prefix("> "))
	require.False(t, sink.Supports(graph.ExactlyOnce), "it must not pretend more than it gives")
	require.True(t, sink.Supports(graph.AtLeastOnce))
	_, err := sink.NewInstance(graph.ExactlyOnce)
	require.Error(t, err)
	for range 2 {
		i, err := sink.NewInstance(graph.AtLeastOnce)
		require.NoError(t, err)
		require.NoError(t, i.Open(t.Context(), &operator.Runtime{Clock: clock{}, Stats: &operator.Stats{}}))
		require.NoError(t, i.Input().(operator.Collector[string]).Collect("hello", 0))
		require.NoError(t, i.Close())
	}
	require.Equal(t, "> hello\n> hello\n", out.String())
}

func TestFailedPrintFailsTheTask(t *testing.T) {
	i, err := printsink.New[string](printsink.To(broken{})).NewInstance(graph.AtLeastOnce)
	require.NoError(t, err)
	require.NoError(t, i.Open(t.Context(), &operator.Runtime{Clock: clock{}, Stats: &operator.Stats{}}))
	require.ErrorIs(t, i.Input().(operator.Collector[string]).Collect("hello", 0), errBroken)
	require.NoError(t, i.Close())
}
