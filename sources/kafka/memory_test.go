package kafkasource_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
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

// heldFetches is a dialer whose connections can hold back the answers to fetch requests and nothing else.
type heldFetches struct {
	mu   sync.Mutex
	gate chan struct{} // closed while answers pass
}

func newHeldFetches() *heldFetches {
	h := &heldFetches{gate: make(chan struct{})}
	close(h.gate)
	return h
}

func (h *heldFetches) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gate = make(chan struct{})
}

func (h *heldFetches) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.gate:
	default:
		close(h.gate)
	}
}

func (h *heldFetches) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &heldConn{Conn: c, held: h}, nil
}

type heldConn struct {
	net.Conn
	held    *heldFetches
	fetches atomic.Bool // the connection carries fetch requests
}

func (c *heldConn) Write(b []byte) (int, error) {
	const apiKeyFetch = 1
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:]) == apiKeyFetch {
		c.fetches.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.fetches.Load() {
		c.held.mu.Lock()
		gate := c.held.gate
		c.held.mu.Unlock()
		<-gate
	}
	return n, err
}

// TestSlowFetchIsNotIdle holds back the fetching of a backlog while end offsets are answered at once: the partition must not count as
// caught up before its records are out, however long that takes, and the silent one beside it must.
func TestSlowFetchIsNotIdle(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 2, nil)
	held := newHeldFetches()
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber, kafkasource.ClientOptions(kgo.Dialer(held.dial))), place{})
	j.until(func() bool { return len(j.out.caughtUp) == 2 })
	var backlog, silent int
	for key, n := range j.out.splits {
		if strings.HasSuffix(key, "/0") {
			backlog = n
		} else {
			silent = n
		}
	}
	held.hold()
	t.Cleanup(held.release) // before the reader is closed, which waits for its reads
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 1, 1, 5))
	written := time.Now()
	clear(j.out.caughtUp)
	// Two answers about the ends, to be sure that one was asked for after the records were written.
	for range 2 {
		j.until(func() bool { return j.out.caughtUp[silent].After(written) })
		written = j.out.caughtUp[silent]
	}
	require.Empty(t, j.out.values)
	require.Zero(t, j.out.caughtUp[backlog])
	require.EqualValues(t, 5, j.counters.lag.Load())
	held.release()
	require.Equal(t, numbers(1, 5), j.untilValues(5))
	j.until(func() bool { return j.out.caughtUp[backlog].After(written) && j.counters.lag.Load() == 0 })
}
