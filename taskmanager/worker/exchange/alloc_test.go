package exchange_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/taskmanager/worker/exchange"
)

// event is of fixed size: what is decoded holds nothing that would have to be allocated.
type event struct {
	Key, Sequence uint64
	Millis        int64
}

type counter struct{ records, sum uint64 }

func (c *counter) Collect(e event, _ int64) error {
	c.records++
	c.sum += e.Sequence
	return nil
}

// way is the whole way of records over a connection: routed, gathered, encoded, sent, received and decoded.
type way struct {
	in      *exchange.Inbox
	to      operator.Collector[event]
	writer  operator.Writer
	reader  operator.Reader
	counted *counter
}

func newWay(t testing.TB) *way {
	values, err := codec.For[event]()
	require.NoError(t, err)
	keys, err := codec.ForKey[uint64]()
	require.NoError(t, err)
	edge := operator.NewHashEdge(values, func(e event) uint64 { return e.Key }, keys)
	w := &way{in: exchange.NewInbox(2), counted: &counter{}}
	s, err := exchange.Listen("127.0.0.1", exchange.Ports{}, attempt)
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false) })
	d := exchange.NewDialer(attempt)
	t.Cleanup(func() { d.Close() })
	var channels []operator.Channel
	for n := range 2 {
		id := exchange.ID{Edge: "e", Consumer: n}
		s.Register(id, w.in, n, func(error) {})
		r := exchange.NewRemote(id, func(error) {})
		require.NoError(t, d.Connect(context.Background(), address(s), r))
		channels = append(channels, r)
	}
	w.writer = edge.NewWriter(operator.WriterConfig{MaxParallelism: 128, Channels: channels})
	w.to = w.writer.Collector().(operator.Collector[event])
	w.reader, err = edge.NewReader(w.counted)
	require.NoError(t, err)
	return w
}

// move moves records and waits until they are there.
func (w *way) move(records uint64) error {
	done := make(chan error, 1)
	go func() { done <- w.work(w.counted.records + records) }()
	for n := range records {
		if err := w.to.Collect(event{n, n, int64(n)}, int64(n)); err != nil {
			return err
		}
	}
	if err := w.writer.Flush(); err != nil {
		return err
	}
	return <-done
}

// work decodes what comes until there were so many records.
func (w *way) work(until uint64) error {
	for w.counted.records < until {
		_, e, ok := w.in.Poll()
		if !ok {
			<-w.in.Wake()
			continue
		}
		if err := w.reader.Encoded(e.Encoded); err != nil {
			return err
		}
		e.Done()
	}
	return nil
}

// TestRecordsBetweenWorkersAreNotAllocated: what is allocated for frames is far below one in ten records.
func TestRecordsBetweenWorkersAreNotAllocated(t *testing.T) {
	w := newWay(t)
	const records = 100_000
	allocations := testing.AllocsPerRun(1, func() {
		if err := w.move(records); err != nil {
			panic(err)
		}
	})
	require.EqualValues(t, 2*records, w.counted.records)
	require.EqualValues(t, 2*(records*(records-1)/2), w.counted.sum)
	require.Less(t, allocations/records, 0.1)
}

func BenchmarkTypedRemote(b *testing.B) {
	w := newWay(b)
	b.ReportAllocs()
	b.ResetTimer()
	if err := w.move(uint64(b.N)); err != nil {
		b.Fatal(err)
	}
}
