package operator_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/operator"
)

type record[T any] struct {
	V  T
	At int64
}

// gather takes records.
type gather[T any] struct{ records []record[T] }

func (g *gather[T]) Collect(v T, at int64) error {
	g.records = append(g.records, record[T]{v, at})
	return nil
}

// wire is a channel to a reader, over the wire form or not.
type wire struct {
	encoded bool
	reader  operator.Reader
	batches []int // their lengths
	bytes   []int
}

func (w *wire) BatchRecords() int { return operator.MaxBatchRecords }

func (w *wire) Send(b operator.Batch) error {
	w.batches = append(w.batches, b.Len())
	if !w.encoded {
		return w.reader.Batch(b)
	}
	for from, records := 0, b.Len(); from < records; {
		data, to, err := b.AppendEncoded([]byte("x"), from)
		if err != nil {
			return err
		}
		w.bytes = append(w.bytes, len(data)-1)
		if err := w.reader.Encoded(data[1:]); err != nil {
			return err
		}
		from = to
	}
	b.Release()
	return nil
}

func codecOf[T any](t require.TestingT) codec.Codec[T] {
	c, err := codec.For[T]()
	require.NoError(t, err)
	return c
}

func keyCodecOf[K comparable](t require.TestingT) codec.Key[K] {
	c, err := codec.ForKey[K]()
	require.NoError(t, err)
	return c
}

// rig is an edge with one producer and n consumers.
type rig[T any] struct {
	writer  operator.Writer
	in      operator.Collector[T]
	wires   []*wire
	outputs []*gather[T]
}

func newRig[T any](t require.TestingT, e operator.EdgeType, n, subtask int, encoded bool) *rig[T] {
	r := &rig[T]{}
	cfg := operator.WriterConfig{Subtask: subtask, MaxParallelism: 128}
	for range n {
		g := &gather[T]{}
		reader, err := e.NewReader(operator.Collector[T](g))
		require.NoError(t, err)
		w := &wire{encoded: encoded, reader: reader}
		r.wires, r.outputs = append(r.wires, w), append(r.outputs, g)
		cfg.Channels = append(cfg.Channels, w)
	}
	r.writer = e.NewWriter(cfg)
	r.in = r.writer.Collector().(operator.Collector[T])
	return r
}

func TestRecordsArriveAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		encoded := rapid.Bool().Draw(t, "encoded")
		timestamp := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{operator.NoTimestamp, math.MaxInt64, 0, -1}))
		r := newRig[string](t, operator.NewEdge(graph.Forward, codecOf[string](t)), 1, 0, encoded)
		var want []record[string]
		for range rapid.IntRange(0, 1200).Draw(t, "n") {
			rec := record[string]{strings.Repeat("é", rapid.SampledFrom([]int{0, 1, 63, 64, 127, 128, 9000}).Draw(t, "size")), timestamp.Draw(t, "at")}
			want = append(want, rec)
			require.NoError(t, r.in.Collect(rec.V, rec.At))
			if rapid.IntRange(0, 99).Draw(t, "flush") == 0 {
				require.NoError(t, r.writer.Flush())
			}
		}
		require.NoError(t, r.writer.Flush())
		require.Empty(t, cmp.Diff(want, r.outputs[0].records))
	})
}

// Records of every size follow one another, also where the batch was made for small ones. Each part of a batch but its last record is
// bounded by what was encoded, and each record on its own.
func TestLargeRecordsAmongSmallOnes(t *testing.T) {
	t.Parallel()
	small, large := strings.Repeat("s", 10), strings.Repeat("l", operator.MaxEncodedBytes/2+1)
	r := newRig[string](t, operator.NewEdge(graph.Forward, codecOf[string](t)), 1, 0, true)
	var want []record[string]
	collect := func(vs ...string) {
		for _, v := range vs {
			want = append(want, record[string]{v, int64(len(want))})
			require.NoError(t, r.in.Collect(v, int64(len(want)-1)))
		}
	}
	for range 300 {
		collect(small)
	}
	require.NoError(t, r.writer.Flush())
	collect(small)
	for range 7 {
		collect(large, small)
	}
	collect(strings.Repeat("m", operator.MaxRecordBytes-16), small)
	require.NoError(t, r.writer.Flush())
	require.Empty(t, cmp.Diff(want, r.outputs[0].records))
	w := r.wires[0]
	require.Equal(t, []int{300, 17}, w.batches)
	require.Len(t, w.bytes, 1+5, "two large ones in each part, and the largest with the one before")
	for _, n := range w.bytes {
		require.Less(t, n, operator.MaxEncodedBytes+operator.MaxRecordBytes)
	}

	// One over the limit is found among small ones that make it a small one on the average.
	for range 100 {
		require.NoError(t, r.in.Collect(small, 0))
	}
	require.NoError(t, r.in.Collect(strings.Repeat("x", operator.MaxRecordBytes+1), 0))
	err := r.writer.Flush()
	require.ErrorIs(t, err, operator.ErrRecordTooLarge)
	require.ErrorContains(t, err, strconv.Itoa(operator.MaxRecordBytes))
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
}

func TestNilAndEmptyBytesStayApart(t *testing.T) {
	r := newRig[[]byte](t, operator.NewEdge(graph.Forward, codecOf[[]byte](t)), 1, 0, true)
	want := []record[[]byte]{{nil, operator.NoTimestamp}, {[]byte{}, 0}, {[]byte{0, 0xff, 0x80}, 1}, {nil, 2}}
	for _, rec := range want {
		require.NoError(t, r.in.Collect(rec.V, rec.At))
	}
	require.NoError(t, r.writer.Flush())
	require.Empty(t, cmp.Diff(want, r.outputs[0].records), "cmp tells nil from empty")

	pointers := newRig[*string](t, operator.NewEdge(graph.Forward, codecOf[*string](t)), 1, 0, true)
	empty := ""
	for _, v := range []*string{nil, &empty} {
		require.NoError(t, pointers.in.Collect(v, 0))
	}
	require.NoError(t, pointers.writer.Flush())
	require.Nil(t, pointers.outputs[0].records[0].V)
	require.Equal(t, &empty, pointers.outputs[0].records[1].V)
}

func TestBatchesAreBounded(t *testing.T) {
	small := newRig[int64](t, operator.NewEdge(graph.Forward, codecOf[int64](t)), 1, 0, true)
	for i := range int64(operator.MaxBatchRecords*2 + 1) {
		require.NoError(t, small.in.Collect(i, i))
	}
	require.Equal(t, []int{operator.MaxBatchRecords, operator.MaxBatchRecords}, small.wires[0].batches)

	// The first batch keeps the bound too, before anything was learned.
	large := newRig[string](t, operator.NewEdge(graph.Forward, codecOf[string](t)), 1, 0, true)
	for range 100 {
		require.NoError(t, large.in.Collect(strings.Repeat("x", 10_000), 0))
	}
	require.NotEmpty(t, large.wires[0].bytes)
	for _, n := range large.wires[0].bytes {
		require.LessOrEqual(t, n, operator.MaxBatchBytes)
		require.Greater(t, n, operator.MaxBatchBytes/2)
	}
}

func TestHashSendsAKeyToItsOwner(t *testing.T) {
	type order struct {
		User string
		N    int
	}
	const consumers = 5
	kc := keyCodecOf[string](t)
	r := newRig[order](t, operator.NewHashEdge(codecOf[order](t), func(o order) string { return o.User }, kc), consumers, 0, true)
	for i := range 1000 {
		require.NoError(t, r.in.Collect(order{strings.Repeat("u", i%97), i}, 0))
	}
	require.NoError(t, r.writer.Flush())
	total := 0
	for subtask, out := range r.outputs {
		total += len(out.records)
		last := make(map[string]int)
		for _, rec := range out.records {
			group := keygroup.Of(kc.Append(nil, rec.V.User), 128)
			require.True(t, keygroup.RangeOf(subtask, consumers, 128).Contains(group))
			require.GreaterOrEqual(t, rec.V.N, last[rec.V.User], "records of a key keep their order")
			last[rec.V.User] = rec.V.N
		}
	}
	require.Equal(t, 1000, total)
}

func TestBroadcastReachesEveryConsumer(t *testing.T) {
	r := newRig[int](t, operator.NewEdge(graph.Broadcast, codecOf[int](t)), 3, 0, false)
	for i := range 1500 {
		require.NoError(t, r.in.Collect(i, int64(i)))
	}
	require.NoError(t, r.writer.Flush())
	for _, out := range r.outputs {
		require.Len(t, out.records, 1500)
		require.Equal(t, record[int]{1499, 1499}, out.records[1499])
	}
}

func TestRebalanceTakesTurns(t *testing.T) {
	r := newRig[int](t, operator.NewEdge(graph.Rebalance, codecOf[int](t)), 3, 4, false)
	// Full batches and flushed ones both pass the turn on.
	for i := range operator.MaxBatchRecords {
		require.NoError(t, r.in.Collect(i, 0))
	}
	for i := range 5 {
		require.NoError(t, r.in.Collect(i, 0))
		require.NoError(t, r.writer.Flush())
	}
	require.Equal(t, []int{1, 1}, r.wires[0].batches)
	require.Equal(t, []int{operator.MaxBatchRecords, 1}, r.wires[1].batches)
	require.Equal(t, []int{1, 1}, r.wires[2].batches)
}

func TestWrongTypesAreRefused(t *testing.T) {
	e := operator.NewEdge(graph.Forward, codecOf[int](t))
	_, err := e.NewReader(operator.Collector[string](&gather[string]{}))
	require.ErrorContains(t, err, "int")
	_, err = operator.Fanout[int]([]any{&gather[string]{}})
	require.Error(t, err)

	other := newRig[string](t, operator.NewEdge(graph.Forward, codecOf[string](t)), 1, 0, false)
	reader, err := e.NewReader(operator.Collector[int](&gather[int]{}))
	require.NoError(t, err)
	other.wires[0].reader = reader
	require.NoError(t, other.in.Collect("x", 0))
	require.ErrorIs(t, other.writer.Flush(), operator.ErrBatch)
}

func TestFanoutReachesAll(t *testing.T) {
	a, b := &gather[int]{}, &gather[int]{}
	both, err := operator.Fanout[int]([]any{a, b})
	require.NoError(t, err)
	require.NoError(t, both.Collect(1, 2))
	require.Equal(t, a.records, b.records)
	none, err := operator.Fanout[int](nil)
	require.NoError(t, err)
	require.NoError(t, none.Collect(1, 2))
}

func FuzzEncodedBatch(f *testing.F) {
	r := newRig[string](f, operator.NewEdge(graph.Forward, codecOf[string](f)), 1, 0, false)
	keep := &sampler{}
	r.wires[0].reader = keep
	for _, v := range []string{"", "a", strings.Repeat("b", 300)} {
		require.NoError(f, r.in.Collect(v, int64(len(v))))
	}
	require.NoError(f, r.writer.Flush())
	f.Add(keep.data)
	f.Add(keep.data[:len(keep.data)/2])
	f.Add([]byte{})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		g := &gather[string]{}
		reader, err := operator.NewEdge(graph.Forward, codecOf[string](t)).NewReader(operator.Collector[string](g))
		require.NoError(t, err)
		if reader.Encoded(data) != nil {
			return
		}
		// Whatever was read can be written and read again.
		again := newRig[string](t, operator.NewEdge(graph.Forward, codecOf[string](t)), 1, 0, true)
		for _, rec := range g.records {
			require.NoError(t, again.in.Collect(rec.V, rec.At))
		}
		require.NoError(t, again.writer.Flush())
		require.Len(t, again.outputs[0].records, len(g.records))
		for i, rec := range g.records {
			require.Equal(t, rec, again.outputs[0].records[i])
		}
	})
}

// sampler keeps the wire form of a batch.
type sampler struct{ data []byte }

func (s *sampler) Batch(b operator.Batch) error {
	var err error
	s.data, _, err = b.AppendEncoded(nil, 0)
	return err
}

func (s *sampler) Encoded([]byte) error { return nil }

func TestMalformedBatches(t *testing.T) {
	e := operator.NewEdge(graph.Forward, codecOf[string](t))
	reader, err := e.NewReader(operator.Collector[string](&gather[string]{}))
	require.NoError(t, err)
	for name, data := range map[string][]byte{
		"nothing":           {},
		"no timestamp":      {1},
		"no length":         {1, 0},
		"cut off":           {1, 0, 5, 'a'},
		"bytes at the end":  {1, 0, 1, 'a', 0},
		"huge record count": {0xff, 0xff, 0xff, 0xff, 0x0f},
	} {
		require.ErrorIs(t, reader.Encoded(data), operator.ErrBatch, name)
	}
}

// watchful is a collector that notes what it is told to expect.
type watchful struct {
	expected, got []int
	early         bool
}

func (w *watchful) Expect(vs []int) { w.expected = append(w.expected, vs...) }

func (w *watchful) Collect(v int, _ int64) error {
	w.early = w.early || len(w.expected) <= len(w.got)
	w.got = append(w.got, v)
	return nil
}

func TestACollectorIsToldOfRecordsToCome(t *testing.T) {
	e := operator.NewEdge(graph.Forward, codecOf[int](t))
	w := &watchful{}
	r, err := e.NewReader(w)
	require.NoError(t, err)
	var sent []operator.Batch
	out := e.NewWriter(operator.WriterConfig{Channels: []operator.Channel{keep{&sent}}})
	for i := range 100 {
		require.NoError(t, out.Collector().(operator.Collector[int]).Collect(i, 0))
	}
	require.NoError(t, out.Flush())
	for _, b := range sent {
		require.NoError(t, r.Batch(b))
	}
	require.Len(t, w.got, 100)
	require.Equal(t, w.expected, w.got)
	require.False(t, w.early, "a record came before it was expected")
}

// keep is a channel that keeps what is sent.
type keep struct{ sent *[]operator.Batch }

func (keep) BatchRecords() int { return operator.MaxBatchRecords }

func (k keep) Send(b operator.Batch) error {
	*k.sent = append(*k.sent, b)
	return nil
}
