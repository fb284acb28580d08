package kafkasink_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/graph"
	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	kafkasink "github.com/weir-stream/weir/sinks/kafka"
	"github.com/weir-stream/weir/sinks/sinktest"
)

func deployment(topic string) sinktest.Deployment {
	return sinktest.Deployment{Job: topic, Attempt: 1, Parallelism: 1, Guarantee: graph.ExactlyOnce, Checkpoints: sinktest.Checkpoints()}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func eachClient(t *testing.T, test func(t *testing.T, client kafkasink.Option)) {
	t.Helper()
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

// TestTransactionTimeoutAboveTheBrokersCap: one clear refusal at the start that names both values; the cap itself is accepted.
func TestTransactionTimeoutAboveTheBrokersCap(t *testing.T) {
	b := kafkatest.StartFor(t, kafkatest.Config{Properties: map[string]string{"transaction.max.timeout.ms": "60000"}})
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, 1, nil)
		begin := time.Now()
		_, err := sinktest.Open[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber, client, kafkasink.TransactionTimeout(2*time.Minute)), deployment(topic))
		require.ErrorContains(t, err, "2m0s")
		require.ErrorContains(t, err, "transaction.max.timeout.ms = 1m0s")
		require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
		require.Less(t, time.Since(begin), 10*time.Second)
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		for _, opts := range [][]kafkasink.Option{{client, kafkasink.TransactionTimeout(time.Minute)}, {client}} {
			a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber, opts...), deployment(topic))
			a.Write(1)
			a.Barrier(1)
			a.Commit(1)
			a.Close()
		}
		// Checkpoint settings that the broker's cap cannot outlive.
		d := deployment(topic)
		d.Checkpoints.Timeout = time.Minute
		_, err = sinktest.Open[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber, client), d)
		require.ErrorContains(t, err, "transaction timeout 1m0s is too short")
		require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	})
}

// TestQuietIntervals: a slow broker, intervals with one record written just before the barrier, and empty ones.
func TestQuietIntervals(t *testing.T) {
	proxy, err := kafkatest.NewProxy()
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	b := kafkatest.StartFor(t, kafkatest.Config{Advertise: proxy.Addr()})
	proxy.SetTarget(b.Listen())
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, 1, nil)
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber, client), deployment(topic))
		proxy.Delay(100 * time.Millisecond)
		written := 0
		for n := uint64(1); n <= 9; n++ {
			if n%3 != 0 {
				written++
				a.Write(written)
			}
			a.Barrier(n)
			a.Commit(n)
		}
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		seen, err := b.ReadNumbers(ctx, topic)
		require.NoError(t, err)
		require.NoError(t, kafkatest.CheckLedger(seen, 1, written))
		end := endOffset(t, b, topic)
		for n := uint64(10); n <= 15; n++ {
			require.Empty(t, a.Barrier(n))
			a.Commit(n)
		}
		require.Equal(t, end, endOffset(t, b, topic), "silence writes nothing")
	})
}

func endOffset(t *testing.T, b *kafkatest.Broker, topic string) int64 {
	t.Helper()
	records, err := b.ReadCommitted(t.Context(), topic)
	require.NoError(t, err)
	require.NotEmpty(t, records)
	open, err := b.OpenTransactions(t.Context(), topic)
	require.NoError(t, err)
	require.Empty(t, open)
	end, err := b.EndOffset(t.Context(), topic, 0)
	require.NoError(t, err)
	return end
}

// TestRecordThatDoesNotFit: 100 small records, one of 3 MiB that compresses to almost nothing, 100 small.
func TestRecordThatDoesNotFit(t *testing.T) {
	b := kafkatest.Shared(t)
	big := bytes.Repeat([]byte("x"), 3<<20)
	encode := func(n int) (kafkasink.Record, error) {
		r, err := encodeNumber(n)
		r.Key = fmt.Appendf(nil, "key-%d", n)
		if n == 0 {
			r.Value = big
		}
		return r, err
	}
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic, dead := b.Topic(t, 1, nil), b.Topic(t, 1, nil)
		fail := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encode, client), deployment(topic))
		fail.Write(1, 2)
		err := fail.Collector.Collect(0, operator.NoTimestamp)
		require.ErrorIs(t, err, kafkasink.ErrTooLarge)
		for _, text := range []string{topic, `"key-0"`, "3145807", "max.message.bytes"} {
			require.ErrorContains(t, err, text)
		}
		require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
		fail.Drop()
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))

		d := deployment(topic)
		d.Attempt = 2
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encode, client, kafkasink.DeadLetterTopic(dead)), d)
		for n := 1; n <= 200; n++ {
			if n == 101 {
				a.Write(0)
			}
			a.Write(n)
		}
		a.Barrier(1)
		a.Commit(1)
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		seen, err := b.ReadNumbers(ctx, topic)
		require.NoError(t, err)
		require.NoError(t, kafkatest.CheckLedger(seen, 1, 200))
		require.NoError(t, b.WaitNoOpenTransactions(ctx, dead))
		letters, err := b.ReadCommitted(ctx, dead)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, "key-0", string(letters[0].Key))
		require.Equal(t, big[:1024], letters[0].Value)
		require.Equal(t, "weir-size", letters[0].Headers[1].Key)
		require.Equal(t, "3145807", string(letters[0].Headers[1].Value))
		require.EqualValues(t, 1, a.Stats.DeadLetters.Load())
	})
}

// TestLargeRecordsOfAGenerousTopic: the topic's own limit decides, for both clients.
func TestLargeRecordsOfAGenerousTopic(t *testing.T) {
	b := kafkatest.Shared(t)
	value := make([]byte, 3<<20)
	for i := range value {
		value[i] = byte(rand.Uint32()) // incompressible
	}
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, 1, map[string]string{"max.message.bytes": "4194304"})
		encode := func(int) (kafkasink.Record, error) { return kafkasink.Record{Value: value}, nil }
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encode, client), deployment(topic))
		a.Write(1, 2)
		a.Barrier(1)
		a.Commit(1)
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		records, err := b.ReadCommitted(ctx, topic)
		require.NoError(t, err)
		require.Len(t, records, 2)
		require.True(t, bytes.Equal(value, records[1].Value))
	})
}

// TestBytesGoOutAsTheyCame compares records byte by byte: null and empty stay apart, headers keep order and repeats.
func TestBytesGoOutAsTheyCame(t *testing.T) {
	b := kafkatest.Shared(t)
	many := make([]kafkasink.Header, 100)
	for i := range many {
		many[i] = kafkasink.Header{Key: fmt.Sprint("h", i%7), Value: []byte{byte(i)}}
	}
	records := []kafkasink.Record{
		{Key: nil, Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("ключ-ö-日本"), Value: []byte{0, 0xff, 0x80}},
		{Key: []byte{0, 0xff, 0x80}, Value: []byte("v")},
		{Key: bytes.Repeat([]byte("k"), 1024), Value: []byte("9007199254740993")},
		{Value: []byte("h"), Headers: []kafkasink.Header{{Key: "a", Value: nil}, {Key: "a", Value: []byte{}}, {Key: "", Value: []byte("x")}}},
		{Value: []byte("many"), Headers: many},
		{Value: []byte("t"), Timestamp: time.UnixMilli(1234567890123)},
	}
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, 1, nil)
		encode := func(i int) (kafkasink.Record, error) { return records[i], nil }
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encode, client), deployment(topic))
		for i := range records {
			require.NoError(t, a.Collector.Collect(i, 777))
		}
		a.Barrier(1)
		a.Commit(1)
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		got, err := b.ReadCommitted(ctx, topic)
		require.NoError(t, err)
		require.Len(t, got, len(records))
		for i, want := range records {
			require.Equal(t, want.Key, got[i].Key, i)
			require.Equal(t, want.Value, got[i].Value, i)
			require.Equal(t, append([]kafkasink.Header{}, want.Headers...), append([]kafkasink.Header{}, got[i].Headers...), i)
			if want.Timestamp.IsZero() {
				require.EqualValues(t, 777, got[i].Timestamp.UnixMilli(), "the event time passes on")
			} else {
				require.Equal(t, want.Timestamp.UnixMilli(), got[i].Timestamp.UnixMilli())
			}
		}
	})
}

// murmur2 is a reference of the hash that the Java client partitions by, held to that client's published vectors.
func murmur2(data []byte) int32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(data[0])) * m
	}
	h = (h ^ h>>13) * m
	return int32(h ^ h>>15)
}

func TestKeysFindTheirJavaPartitions(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
	} {
		require.Equal(t, want, murmur2([]byte(key)), key)
	}
	const partitions = 7
	b := kafkatest.Shared(t)
	keys := [][]byte{{}, []byte("ключ-ö-日本"), {0, 0xff, 0x80}}
	random := rand.New(rand.NewPCG(1, 2))
	for len(keys) < 1000 {
		key := make([]byte, random.IntN(20)+1)
		for i := range key {
			key[i] = byte(random.Uint32())
		}
		keys = append(keys, key)
	}
	eachClient(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, partitions, nil)
		encode := func(i int) (kafkasink.Record, error) {
			r := kafkasink.Record{Key: keys[i], Value: binary.BigEndian.AppendUint32(nil, uint32(i))}
			if i%10 == 9 {
				r.Partition = kafkasink.ToPartition(int32(i % partitions))
			}
			return r, nil
		}
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encode, client), deployment(topic))
		for i := range keys {
			a.Write(i)
		}
		a.Barrier(1)
		a.Commit(1)
		require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
		records, err := b.ReadCommitted(ctx, topic)
		require.NoError(t, err)
		require.Len(t, records, len(keys))
		for _, r := range records {
			i := int(binary.BigEndian.Uint32(r.Value))
			want := (murmur2(keys[i]) & 0x7fffffff) % partitions
			if i%10 == 9 {
				want = int32(i % partitions)
			}
			require.Equal(t, want, r.Partition, "key %x", keys[i])
		}
	})
}

func TestUnreachableBrokerAndMissingTopicAreNamed(t *testing.T) {
	b := kafkatest.Shared(t)
	ctx := testContext(t)
	for _, guarantee := range []graph.Guarantee{graph.ExactlyOnce, graph.AtLeastOnce} {
		d := deployment("j")
		d.Guarantee = guarantee
		begin := time.Now()
		_, err := sinktest.Open[int](t, ctx, kafkasink.New(b.Addr(), "no-such-topic", encodeNumber), d)
		require.ErrorContains(t, err, `topic "no-such-topic" does not exist on the cluster; create it or correct the name`)
		require.Equal(t, 1, strings.Count(err.Error(), "does not exist"), err)
		require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
		_, err = sinktest.Open[int](t, ctx, kafkasink.New("127.0.0.1:1", "t", encodeNumber, kafkasink.Deadline(time.Second)), d)
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.ErrorContains(t, err, "refused")
		require.Less(t, time.Since(begin), 20*time.Second)
	}
}

// TestBrokerThatStopsAnswering: every wait has a deadline.
func TestBrokerThatStopsAnswering(t *testing.T) {
	b := kafkatest.StartFor(t, kafkatest.Config{})
	eachClientInTurn(t, func(t *testing.T, client kafkasink.Option) {
		ctx := testContext(t)
		topic := b.Topic(t, 1, nil)
		a := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber, client, kafkasink.Deadline(5*time.Second)), deployment(topic))
		a.Write(1)
		require.NoError(t, b.Pause())
		t.Cleanup(func() { _ = b.Resume() })
		a.Write(2)
		begin := time.Now()
		_, err := a.TryBarrier(1)
		require.Error(t, err)
		require.Equal(t, operator.ClassUnavailable, operator.ClassOf(err))
		a.Drop()
		require.Less(t, time.Since(begin), 20*time.Second)
		require.NoError(t, b.Resume())
	})
}

func eachClientInTurn(t *testing.T, test func(t *testing.T, client kafkasink.Option)) {
	t.Helper()
	for name, client := range clients {
		t.Run(name, func(t *testing.T) { test(t, client) })
	}
}

// TestForeignTransactionsStayUntouched: fencing ends this sink's ids and nothing else.
func TestForeignTransactionsStayUntouched(t *testing.T) {
	b := kafkatest.Shared(t)
	ctx := testContext(t)
	topic := b.Topic(t, 1, nil)
	foreign, err := b.Client(kgo.TransactionalID("foreign-"+topic), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer foreign.Close()
	require.NoError(t, foreign.BeginTransaction())
	require.NoError(t, foreign.ProduceSync(ctx, kgo.StringRecord("2")).FirstErr())
	first := sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber), deployment(topic))
	first.Write(1)
	d := deployment(topic)
	d.Attempt, d.Former = 2, []operator.FormerAttempt{sinktest.Former(1)}
	sinktest.Start[int](t, ctx, kafkasink.New(b.Addr(), topic, encodeNumber), d)
	require.NoError(t, foreign.EndTransaction(ctx, kgo.TryCommit))
	require.NoError(t, b.WaitNoOpenTransactions(ctx, topic))
	seen, err := b.ReadNumbers(ctx, topic)
	require.NoError(t, err)
	require.Equal(t, map[int]int{2: 1}, seen)
}
