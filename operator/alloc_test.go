package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/operator"
)

// sendAway releases what it gets, as a channel between tasks of one process does in the end.
type sendAway struct{}

func (sendAway) BatchRecords() int { return operator.MaxBatchRecords }

func (sendAway) Send(b operator.Batch) error {
	b.Release()
	return nil
}

type event struct {
	User string
	N    int64
}

func hashWriter[K comparable](t require.TestingT, key func(event) K) (operator.Writer, operator.Collector[event]) {
	e := operator.NewHashEdge(codecOf[event](t), key, keyCodecOf[K](t))
	w := e.NewWriter(operator.WriterConfig{MaxParallelism: 128, Channels: []operator.Channel{sendAway{}, sendAway{}, sendAway{}}})
	return w, w.Collector().(operator.Collector[event])
}

func TestWritersDoNotAllocatePerRecord(t *testing.T) {
	const records = 10_000
	measure := func(in operator.Collector[event]) float64 {
		return testing.AllocsPerRun(5, func() {
			for i := range int64(records) {
				require.NoError(t, in.Collect(event{"user-1", i}, i))
			}
		}) / records
	}
	_, byString := hashWriter(t, func(e event) string { return e.User })
	require.Less(t, measure(byString), 0.05)
	_, byInt := hashWriter(t, func(e event) int64 { return e.N })
	require.Less(t, measure(byInt), 0.05)
	w := operator.NewEdge(graph.Rebalance, codecOf[event](t)).NewWriter(operator.WriterConfig{Channels: []operator.Channel{sendAway{}, sendAway{}}})
	require.Less(t, measure(w.Collector().(operator.Collector[event])), 0.05)
}

func BenchmarkHashWriterString(b *testing.B) {
	_, in := hashWriter(b, func(e event) string { return e.User })
	b.ReportAllocs()
	for i := range int64(b.N) {
		_ = in.Collect(event{"user-1", i}, i)
	}
}

func BenchmarkHashWriterInt(b *testing.B) {
	_, in := hashWriter(b, func(e event) int64 { return e.N })
	b.ReportAllocs()
	for i := range int64(b.N) {
		_ = in.Collect(event{"user-1", i}, i)
	}
}
