package kafkasource_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

func keepRecord(r kafkasource.Record) (kafkasource.Record, error) { return r, nil }

// TestWhatIsReadIsWhatAConsumerReads: every compression, with headers and nulls, in transactions of two producers that lie in each other in one
// partition, committed and aborted, and an open one at the end; franz-go's consumer is the measure.
func TestWhatIsReadIsWhatAConsumerReads(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	n := 0
	record := func() *kgo.Record {
		n++
		r := &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(1_700_000_000_000 + int64(n%7))}
		if n%3 > 0 {
			r.Key = fmt.Appendf(nil, "key-%d", n)
		}
		switch n % 4 {
		case 0:
			r.Value = []byte{}
		case 1:
			r.Value = slices.Repeat([]byte("value "), n)
		case 2:
			r.Value = strconv.AppendInt(nil, int64(n), 10)
		}
		for h := range n % 3 {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: fmt.Sprint("h", h), Value: []byte("v")[:h]})
		}
		return r
	}
	compressions := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for i, c := range compressions {
		producer := func(id string) *kgo.Client {
			cl, err := b.Client(kgo.TransactionalID(topic+id+strconv.Itoa(i)), kgo.ProducerBatchCompression(c))
			require.NoError(t, err)
			t.Cleanup(cl.Close)
			return cl
		}
		one, other := producer("a"), producer("b")
		write := func(cl *kgo.Client) {
			require.NoError(t, cl.ProduceSync(t.Context(), record(), record(), record(), record(), record()).FirstErr())
		}
		require.NoError(t, one.BeginTransaction())
		require.NoError(t, other.BeginTransaction())
		write(one)
		write(other)
		write(one)
		require.NoError(t, one.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 0)))
		require.NoError(t, one.BeginTransaction())
		write(one)
		write(other)
		require.NoError(t, other.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 1)))
		require.NoError(t, one.EndTransaction(t.Context(), kgo.TransactionEndTry(i%3 == 0)))
		plain, err := b.Client(kgo.ProducerBatchCompression(c))
		require.NoError(t, err)
		defer plain.Close()
		write(plain)
	}
	committed, err := b.ReadCommitted(t.Context(), topic)
	require.NoError(t, err)
	require.Greater(t, len(committed), 50)
	require.Less(t, len(committed), n, "some are aborted")
	open, err := b.Client(kgo.TransactionalID(topic + "open"))
	require.NoError(t, err)
	defer open.Close()
	require.NoError(t, open.BeginTransaction())
	require.NoError(t, open.ProduceSync(t.Context(), record()).FirstErr())
	defer func() { require.NoError(t, open.EndTransaction(t.Context(), kgo.TryAbort)) }()

	var want []kafkasource.Record
	for _, r := range committed {
		if len(r.Headers) == 0 {
			r.Headers = nil
		}
		want = append(want, kafkasource.Record{
			Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp,
		})
	}
	j := start[kafkasource.Record](t, kafkasource.New(b.Addr(), topic, keepRecord), place{})
	require.Empty(t, cmp.Diff(want, j.untilValues(len(want))))
	// From a checkpoint in the middle of a batch, the rest.
	half := start[kafkasource.Record](t, kafkasource.New(b.Addr(), topic, keepRecord), place{})
	for len(half.out.values) == 0 {
		if half.pending == nil {
			half.pending = <-half.fetched
		}
		more, err := half.reader.Emit(half.pending, half.out, 7)
		require.NoError(t, err)
		if !more {
			half.pending = nil
		}
	}
	require.Len(t, half.out.values, 7)
	positions := half.checkpoint(1)
	half.stop()
	rest := start[kafkasource.Record](t, kafkasource.New(b.Addr(), topic, keepRecord), place{restored: positions})
	require.Empty(t, cmp.Diff(want[7:], rest.untilValues(len(want)-7)))
	require.Empty(t, rest.out.caughtUp, "a transaction is open")
}

// TestABrokerThatDiesWhileItIsRead: what was written before and after is read once.
func TestABrokerThatDiesWhileItIsRead(t *testing.T) {
	b := kafkatest.StartFor(t, kafkatest.Config{})
	topic := b.Topic(t, 3, nil)
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 3, 1, 300))
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber), place{})
	j.untilValues(300)
	require.NoError(t, b.Kill())
	j.until(func() bool { return j.counters.lag.Load() == -1 })
	require.Contains(t, j.log.String(), "the cluster does not answer")
	require.NoError(t, b.Restart(t.Context()))
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 3, 301, 600))
	require.Equal(t, numbers(1, 600), sorted(j.untilValues(600)))
	j.until(func() bool {
		return strings.Contains(j.log.String(), "the cluster answers again") && j.counters.lag.Load() == 0
	})
}
