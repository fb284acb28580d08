package operator_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/operator/process"
	"github.com/weir-stream/weir/operator/transform"
	"github.com/weir-stream/weir/operator/windowing"
	"github.com/weir-stream/weir/statebackend/statetest"
)

const pathKeys, pathRecords = 2000, 5000

// reading is what the hot paths carry: a key and a number.
type reading struct {
	Key, N uint64
}

type swallow[T any] struct{}

func (swallow[T]) Collect(T, int64) error { return nil }

// deliver is a channel whose consumer works batches off at once.
type deliver struct{ to operator.Reader }

func (deliver) BatchRecords() int             { return operator.MaxBatchRecords }
func (d deliver) Send(b operator.Batch) error { return d.to.Batch(b) }
func keyOfReading(r reading) uint64           { return r.Key }
func opened(t testing.TB, i operator.Instance) { //nolint:thelper // it is no check
	rt := &operator.Runtime{
		ClusterID: "c", JobID: "j", Attempt: 1, Vertex: "v", Operator: graph.Operator{UID: "op"}, Parallelism: 1,
		MaxParallelism: keygroup.DefaultMaxParallelism, KeyGroups: keygroup.Range{Last: keygroup.DefaultMaxParallelism - 1},
		Logger: slog.New(slog.DiscardHandler), Stats: &operator.Stats{}, Dir: t.TempDir(),
		Segments: statetest.NewStore(t.TempDir()), Post: func(func() error) {},
	}
	require.NoError(t, i.Open(t.Context(), rt))
	t.Cleanup(func() { require.NoError(t, i.Close()) })
}

func counting(t testing.TB) operator.Instance {
	i, err := process.New(process.Config[uint64, reading, reading]{
		Key: keyOfReading, KeyCodec: keyCodecOf[uint64](t),
		Setup: func(s *process.States[uint64]) process.Handler[uint64, reading, reading] {
			count := process.NewValue[uint64](s, "count")
			return process.Handler[uint64, reading, reading]{Record: func(c *process.Context[uint64, reading], r reading) error {
				n, _, err := count.Get()
				if err != nil {
					return err
				}
				if err := count.Put(n + 1); err != nil {
					return err
				}
				return c.Emit(reading{r.Key, n + 1})
			}}
		},
	}).New([]any{operator.Collector[reading](swallow[reading]{})})
	require.NoError(t, err)
	opened(t, i)
	return i
}

type summing struct{}

func (summing) Add(acc *uint64, r reading)                         { *acc += r.N }
func (summing) Merge(into *uint64, from uint64)                    { *into += from }
func (summing) Result(_ uint64, _ windowing.Span, n uint64) uint64 { return n }

func windows(t testing.TB) operator.Instance {
	i, err := windowing.New(windowing.Config[uint64, reading, uint64, uint64]{
		Windows: windowing.NewFixed(time.Hour, time.Hour, 0), Key: keyOfReading, KeyCodec: keyCodecOf[uint64](t), AccCodec: codecOf[uint64](t),
		Function: windowing.Aggregate(summing{}),
	}).New([]any{operator.Collector[uint64](swallow[uint64]{})})
	require.NoError(t, err)
	opened(t, i)
	return i
}

func passing(t testing.TB) operator.Instance {
	keep, err := transform.Filter(func(r reading) (bool, error) { return r.N%10 != 0, nil }).
		New([]any{operator.Collector[reading](swallow[reading]{})})
	require.NoError(t, err)
	double, err := transform.Map(func(r reading) (reading, error) { return reading{r.Key, 2 * r.N}, nil }).New([]any{keep.Input()})
	require.NoError(t, err)
	return double
}

// No record allocates on its way over an edge into an operator and its state, be the state changed for the first time since a barrier or
// not. There is something to allocate for batches and for pieces of tables, each for hundreds of records.
func TestRecordsDoNotAllocate(t *testing.T) {
	for _, c := range []struct {
		name     string
		instance func(testing.TB) operator.Instance
		barriers bool // one before the records, whose snapshot is still to be written
	}{
		{"a filter and a map", passing, false},
		{"a count per key", counting, false},
		{"a count per key, with barriers", counting, true},
		{"a sum per key and window", windows, false},
		{"a sum per key and window, with barriers", windows, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := c.instance(t)
			e := operator.NewEdge(graph.Forward, codecOf[reading](t))
			r, err := e.NewReader(i.Input())
			require.NoError(t, err)
			w := e.NewWriter(operator.WriterConfig{Channels: []operator.Channel{deliver{r}}})
			in := w.Collector().(operator.Collector[reading])
			checkpoint := uint64(0)
			allocs := testing.AllocsPerRun(5, func() {
				if checkpoint++; c.barriers {
					if _, err := i.Snapshot(t.Context(), operator.Barrier{Checkpoint: checkpoint}); err != nil {
						panic(err)
					}
				}
				for n := range uint64(pathRecords) {
					if err := in.Collect(reading{n * 7919 % pathKeys, n}, int64(n)); err != nil {
						panic(err)
					}
				}
			})
			require.Less(t, allocs, pathRecords/10., "for %d records of %d keys", pathRecords, pathKeys)
		})
	}
}
