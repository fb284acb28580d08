package produce_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/sinks/kafka/internal/produce"
)

func TestMain(m *testing.M) { kafkatest.Main(m, func() error { return goleak.Find() }) }

// ledger is what a writer told of its records.
type ledger struct {
	mu      sync.Mutex
	records int64
	bytes   int
	failed  []error
	next    map[int32]int64 // offset after the last record, by partition
}

func (l *ledger) delivered(d produce.Delivery) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records += d.Records
	l.bytes += d.Bytes
	if d.Err != nil {
		l.failed = append(l.failed, d.Err)
		return
	}
	if l.next == nil {
		l.next = map[int32]int64{}
	}
	l.next[d.Partition] = d.Offset + d.Records
}

func newWriter(t *testing.T, brokers []string, cfg produce.Config, opts ...kgo.Opt) (*produce.Writer, *ledger) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(brokers...)}, opts...)...)
	require.NoError(t, err)
	l := &ledger{}
	cfg.Client, cfg.Deadline, cfg.Delivered = cl, 10*time.Second, l.delivered
	cfg.TransactionTimeout, cfg.TransactionsV2 = time.Minute, true
	if cfg.BatchBytes == nil {
		cfg.BatchBytes = func(string) int { return 1 << 20 }
	}
	w, err := produce.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		w.Close()
		cl.Close()
	})
	return w, l
}

func send(t *testing.T, w *produce.Writer, topic string, from, to int) (payload int) {
	for i := from; i < to; i++ {
		v := strconv.AppendInt(nil, int64(i), 10)
		require.NoError(t, w.Send(topic, int32(i%2), nil, v, nil, 1))
		payload += len(v)
	}
	return payload
}

// inOrder checks that each partition has its numbers once and in order.
func inOrder(t *testing.T, records []*kgo.Record, n int) {
	next := map[int32]int{0: 0, 1: 1}
	for _, r := range records {
		got, err := strconv.Atoi(string(r.Value))
		require.NoError(t, err)
		require.Equal(t, next[r.Partition], got, "partition %d, offset %d", r.Partition, r.Offset)
		next[r.Partition] += 2
	}
	require.Len(t, records, n)
}

// fake returns a broker of one node whose answers to Produce requests a test can make, and what was in the requests: the sequence numbers
// of the batches of each partition.
func fake(t *testing.T, answer func(n int) *kerr.Error) (brokers []string, sequences func() map[int32][]int32) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var (
		mu   sync.Mutex
		n    int
		seen = map[int32][]int32{}
	)
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		req := r.(*kmsg.ProduceRequest)
		code := answer(n)
		n++
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				var b kmsg.RecordBatch
				if err := b.ReadFrom(p.Records); err != nil {
					return nil, err, true
				}
				seen[p.Partition] = append(seen[p.Partition], b.FirstSequence)
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition = p.Partition
				if code != nil {
					rp.ErrorCode = code.Code
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		if code == nil {
			return nil, nil, false // the broker's own answer
		}
		return resp, nil, true
	})
	return c.ListenAddrs(), func() map[int32][]int32 {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

func read(t *testing.T, brokers []string, n int) []*kgo.Record {
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(t, err)
	defer cl.Close()
	var out []*kgo.Record
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(out) < n {
		fetches := cl.PollFetches(ctx)
		require.NoError(t, fetches.Err0())
		out = append(out, fetches.Records()...)
	}
	return out
}

func TestBatchGoesAgainWithItsSequence(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas, kerr.ConcurrentTransactions, kerr.KafkaStorageError} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			brokers, sequences := fake(t, func(n int) *kerr.Error {
				if n < 3 {
					return code
				}
				return nil
			})
			w, l := newWriter(t, brokers, produce.Config{TransactionalID: "again"})
			require.NoError(t, w.Init(t.Context()))
			payload := send(t, w, "t", 0, 1000)
			require.NoError(t, w.Flush(t.Context()))
			require.NoError(t, w.Commit(t.Context()))
			inOrder(t, read(t, brokers, 1000), 1000)
			require.EqualValues(t, 1000, l.records)
			require.Equal(t, payload, l.bytes)
			again := 0
			for _, all := range sequences() {
				require.True(t, slices.IsSorted(all), "%v", all)
				again += len(all) - len(slices.Compact(all))
			}
			require.GreaterOrEqual(t, again, 3, "nothing was repeated")
		})
	}
}

func TestEveryRecordFailsAfterAnErrorThatIsFinal(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.ProducerFenced, kerr.TransactionAbortable, kerr.MessageTooLarge, kerr.TopicAuthorizationFailed, kerr.InvalidRecord} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			brokers, _ := fake(t, func(int) *kerr.Error { return code })
			w, l := newWriter(t, brokers, produce.Config{TransactionalID: "final"})
			require.NoError(t, w.Init(t.Context()))
			send(t, w, "t", 0, 100)
			require.ErrorIs(t, w.Flush(t.Context()), code)
			require.ErrorIs(t, w.Send("t", 0, nil, []byte("x"), nil, 1), code)
			require.EqualValues(t, 100, l.records, "each record sent has an outcome")
			for _, err := range l.failed {
				require.ErrorIs(t, err, code)
			}
			require.NotEmpty(t, l.failed)
			require.ErrorIs(t, w.Flush(t.Context()), code)
		})
	}
}

func TestFlushTellsWhatItWaitedFor(t *testing.T) {
	brokers, _ := fake(t, func(int) *kerr.Error { return kerr.NotEnoughReplicas })
	w, _ := newWriter(t, brokers, produce.Config{TransactionalID: "waits"})
	require.NoError(t, w.Init(t.Context()))
	send(t, w, "t", 0, 10)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := w.Flush(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, kerr.NotEnoughReplicas)
}

// A push has few records leave before they have lingered, and many wait for more.
func TestPushedRecordsDoNotLinger(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	defer c.Close()
	var requests atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		requests.Add(1)
		return nil, nil, false
	})
	w, l := newWriter(t, c.ListenAddrs(), produce.Config{Linger: time.Hour})
	written := func() int64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.records
	}
	send(t, w, "t", 0, 10)
	require.Eventually(t, func() bool { w.Push(); return written() == 10 }, 10*time.Second, time.Millisecond)
	send(t, w, "t", 0, 10)
	w.Push()
	require.Eventually(t, func() bool { return written() == 20 }, 10*time.Second, time.Millisecond)
	before := requests.Load()
	for range 10 {
		require.NoError(t, w.Send("t", 0, nil, make([]byte, 20<<10), nil, 1))
		w.Push()
	}
	require.NoError(t, w.Flush(t.Context()))
	require.EqualValues(t, 30, written())
	require.EqualValues(t, 1, requests.Load()-before)
}

func TestUnknownPartitionIsRefused(t *testing.T) {
	brokers, _ := fake(t, func(int) *kerr.Error { return nil })
	w, _ := newWriter(t, brokers, produce.Config{})
	send(t, w, "t", 0, 2)
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, w.Send("t", 2, nil, nil, nil, 1), "it may be a new one")
	require.ErrorContains(t, w.Flush(t.Context()), "no such partition: t/2")
}

// An answer that ends everything comes while requests to other brokers are under way.
func TestFinalAnswerOfOneOfSeveralBrokers(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(30, "t"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	var n atomic.Int64
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		if n.Add(1)%20 != 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.ProducerFenced.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	for range 20 {
		w, l := newWriter(t, c.ListenAddrs(), produce.Config{BatchBytes: func(string) int { return 300 }})
		sent := int64(0)
		for i := range 20_000 {
			if w.Send("t", int32(i%30), nil, fmt.Appendf(nil, "%031d", i), nil, 1) != nil {
				break
			}
			sent++
		}
		require.ErrorIs(t, w.Flush(t.Context()), kerr.ProducerFenced)
		w.Close()
		require.Equal(t, sent, l.records, "each record sent has one outcome")
	}
}

// A partition's records keep their order while its leader changes and partitions are added.
func TestLeadersMoveAndPartitionsAreAdded(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w, l := newWriter(t, c.ListenAddrs(), produce.Config{TransactionalID: "moves", BatchBytes: func(string) int { return 300 }})
	require.NoError(t, w.Init(t.Context()))
	const n = 9000
	for i := range n {
		if i%1000 == 999 {
			partition := int32(i / 1000 % 2)
			require.NoError(t, c.MoveTopicPartition("t", partition, (c.LeaderFor("t", partition)+1)%3))
		}
		send(t, w, "t", i, i+1)
		if i%500 == 0 {
			require.NoError(t, w.Flush(t.Context()))
		}
	}
	require.NoError(t, w.Flush(t.Context()))
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...))
	require.NoError(t, err)
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreatePartitions(t.Context(), 1, "t")
	require.NoError(t, err)
	require.NoError(t, w.Send("t", 2, nil, []byte("new"), nil, 1))
	require.NoError(t, w.Flush(t.Context()))
	require.NoError(t, w.Commit(t.Context()))
	require.Empty(t, l.failed)
	var old []*kgo.Record
	for _, r := range read(t, c.ListenAddrs(), n+1) {
		if r.Partition < 2 {
			old = append(old, r)
		}
	}
	inOrder(t, old, n)
}

// losing is a connection that loses answers: it reads them, and then breaks.
type losing struct {
	net.Conn
	lose *atomic.Int32
	sent atomic.Bool // something large was written: records
}

func (c *losing) Write(b []byte) (int, error) {
	if len(b) > 1000 {
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *losing) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && n > 0 && c.sent.Load() && c.lose.Add(-1) >= 0 {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}

// A batch whose answer was lost was written; sent again, it must not be there twice.
func TestAnswersThatAreLostRepeatNothing(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 2, nil)
	var lose atomic.Int32
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &losing{Conn: conn, lose: &lose}, err
	}
	w, l := newWriter(t, []string{b.Addr()}, produce.Config{TransactionalID: topic}, kgo.Dialer(dial))
	require.NoError(t, w.Init(t.Context()))
	for round := range 5 {
		lose.Store(3)
		send(t, w, topic, round*4000, (round+1)*4000)
		require.NoError(t, w.Flush(t.Context()))
		require.Negative(t, lose.Load(), "no answer was lost")
		require.NoError(t, w.Commit(t.Context()))
	}
	require.Empty(t, l.failed)
	require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
	records, err := b.ReadCommitted(t.Context(), topic)
	require.NoError(t, err)
	inOrder(t, records, 20000)
	last := map[int32]int64{}
	for _, r := range records {
		last[r.Partition] = r.Offset + 1
	}
	require.Equal(t, last, l.next)
}

func TestCompression(t *testing.T) {
	b := kafkatest.Shared(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		topic := b.Topic(t, 2, nil)
		var wrote atomic.Int64
		w, _ := newWriter(t, []string{b.Addr()}, produce.Config{TransactionalID: topic}, kgo.ProducerBatchCompression(codec), kgo.WithHooks(countWrites{&wrote}))
		require.NoError(t, w.Init(t.Context()))
		value := bytes.Repeat([]byte("compressible "), 100)
		for i := range 1000 {
			require.NoError(t, w.Send(topic, int32(i%2), binary.BigEndian.AppendUint32(nil, uint32(i)), value, nil, 1))
		}
		require.NoError(t, w.Flush(t.Context()))
		require.NoError(t, w.Commit(t.Context()))
		require.NoError(t, b.WaitNoOpenTransactions(t.Context(), topic))
		records, err := b.ReadCommitted(t.Context(), topic)
		require.NoError(t, err)
		require.Len(t, records, 1000, name)
		for _, r := range records {
			require.Equal(t, value, r.Value, name)
		}
		if name == "none" {
			require.Greater(t, wrote.Load(), int64(1000*len(value)), name)
		} else {
			require.Less(t, wrote.Load(), int64(1000*len(value)/3), name)
		}
	}
}

type countWrites struct{ bytes *atomic.Int64 }

func (c countWrites) OnBrokerE2E(_ kgo.BrokerMetadata, key int16, e2e kgo.BrokerE2E) {
	if key == int16(kmsg.Produce) {
		c.bytes.Add(int64(e2e.BytesWritten))
	}
}

// Batches are as small as they can be, so that a request cannot hold them all, and every partition gets its turn.
func TestManyPartitions(t *testing.T) {
	b := kafkatest.Shared(t)
	const partitions, each = 50, 40
	topic := b.Topic(t, partitions, nil)
	w, l := newWriter(t, []string{b.Addr()}, produce.Config{BatchBytes: func(string) int { return 100 }})
	for i := range partitions * each {
		require.NoError(t, w.Send(topic, int32(i%partitions), nil, fmt.Appendf(nil, "%060d", i), nil, 1))
	}
	require.NoError(t, w.Flush(t.Context()))
	require.EqualValues(t, partitions*each, l.records)
	require.Empty(t, l.failed)
	for p, next := range l.next {
		require.EqualValues(t, each, next, "partition %d", p)
	}
	require.Len(t, l.next, partitions)
}

func TestRecordsWithoutAKeyAreSpread(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 4, nil)
	w, l := newWriter(t, []string{b.Addr()}, produce.Config{BatchBytes: func(string) int { return 1000 }})
	for i := range 20_000 {
		require.NoError(t, w.Send(topic, -1, nil, fmt.Appendf(nil, "%060d", i), nil, 1))
	}
	require.NoError(t, w.Flush(t.Context()))
	require.Len(t, l.next, 4)
	for p, n := range l.next {
		require.Greater(t, n, int64(2000), "partition %d", p)
	}
}

func TestCloseWhileNothingAnswers(t *testing.T) {
	brokers, _ := fake(t, func(int) *kerr.Error { return kerr.NotLeaderForPartition })
	w, _ := newWriter(t, brokers, produce.Config{})
	send(t, w, "t", 0, 10)
	flushed := make(chan error, 1)
	go func() { flushed <- w.Flush(context.Background()) }()
	w.Close()
	select {
	case err := <-flushed:
		require.Error(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("the flush still waits")
	}
}
