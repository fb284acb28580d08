package kafkasource_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

// TestMemoryOfASlowConsumer: 8 partitions with 20 MB each of records that compress well, read slowly under a bound of 16 MiB.
func TestMemoryOfASlowConsumer(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 8, nil)
	value := bytes.Repeat([]byte("compressible "), 800)
	cl, err := b.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.GzipCompression()), kgo.ProducerLinger(20*time.Millisecond))
	require.NoError(t, err)
	defer cl.Close()
	const records = 16_000
	var failed atomic.Int64
	for n := range records {
		cl.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: int32(n % 8), Key: []byte(strconv.Itoa(n)), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
			}
		})
	}
	require.NoError(t, cl.Flush(t.Context()))
	require.Zero(t, failed.Load())

	const bound = 16 << 20
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	seen := make([]bool, records)
	n := 0
	j := start[int](t, kafkasource.New(b.Addr(), topic, func(r kafkasource.Record) (int, error) { return strconv.Atoi(string(r.Key)) }, kafkasource.MemoryBytes(bound)), place{})
	var most int64
	for round := 0; n < records; round++ {
		require.NoError(t, j.step(20*time.Second))
		for _, v := range j.out.values {
			require.False(t, seen[v])
			seen[v] = true
			n++
		}
		j.out.values, j.out.times = nil, nil
		if round%10 == 0 {
			most = max(most, heap()-before)
		}
	}
	// What the client keeps for a batch while it is parsed comes on top; unbounded, it would be all of the 160 MB.
	require.Less(t, most, int64(3*bound), "at most %d bytes", most)
}

// TestLargeRecordsArriveWhateverTheFetchSize: records of 900 KiB with fetches of 256 KiB.
func TestLargeRecordsArriveWhateverTheFetchSize(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 2, nil)
	value := make([]byte, 900<<10)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	for n := range 10 {
		require.NoError(t, b.Produce(t.Context(), &kgo.Record{Topic: topic, Partition: int32(n % 2), Key: []byte(strconv.Itoa(n)), Value: value}))
	}
	j := start[int](t, kafkasource.New(b.Addr(), topic, func(r kafkasource.Record) (int, error) {
		if !bytes.Equal(r.Value, value) {
			return 0, strconv.ErrSyntax
		}
		return strconv.Atoi(string(r.Key))
	}, kafkasource.FetchBytes(256<<10, 256<<10), kafkasource.MemoryBytes(1<<20)), place{})
	require.Equal(t, numbers(0, 9), sorted(j.untilValues(10)))
}

// TestSlowFetchIsNotIdle: a proxy holds back a backlog; the partition must not count as caught up before its records are out.
func TestSlowFetchIsNotIdle(t *testing.T) {
	proxy, err := kafkatest.NewProxy()
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	b := kafkatest.StartFor(t, kafkatest.Config{Advertise: proxy.Addr()})
	proxy.SetTarget(b.Listen())
	topic := b.Topic(t, 2, nil)
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber), place{})
	j.until(func() bool { return len(j.out.caughtUp) == 2 })
	proxy.Delay(700 * time.Millisecond)
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 1, 1, 5))
	written := time.Now()
	clear(j.out.caughtUp)
	full := func() bool { return len(j.out.values) == 5 }
	var early time.Time
	j.until(func() bool {
		for _, asOf := range j.out.caughtUp {
			if asOf.After(written) && !full() {
				early = asOf
			}
		}
		return full()
	})
	// The silent partition 1 may well be caught up; partition 0 has the backlog.
	if !early.IsZero() {
		require.Len(t, j.out.caughtUp, 1)
	}
	j.until(func() bool { return len(j.out.caughtUp) == 2 })
}
