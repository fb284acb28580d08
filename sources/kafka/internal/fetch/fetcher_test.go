package fetch_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/weir-stream/weir/internal/testlog"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources/kafka/internal/fetch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a fake cluster with the topic t and a client of it.
type cluster struct {
	*kfake.Cluster
	t  *testing.T
	cl *kgo.Client
}

func newCluster(t *testing.T, brokers, partitions int, opts ...kfake.Opt) *cluster {
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers), kfake.SeedTopics(int32(partitions), "t"))...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(32<<10))
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return &cluster{c, t, cl}
}

// write writes the numbers first to last to a partition.
func (c *cluster) write(partition int32, first, last int) {
	c.t.Helper()
	var records []*kgo.Record
	for n := first; n <= last; n++ {
		records = append(records, &kgo.Record{Topic: "t", Partition: partition, Value: strconv.AppendInt(nil, int64(n), 10)})
	}
	require.NoError(c.t, c.cl.ProduceSync(c.t.Context(), records...).FirstErr())
}

// epochs answers questions for the end of a leader's epoch as Kafka does, which knows of the next epoch before something is written in it: end is
// the partition's.
func (c *cluster) epochs(answer func(topic string, partition int32, end int64) int64) (asked *atomic.Int32) {
	asked = &atomic.Int32{}
	c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(1)
		req := r.(*kmsg.OffsetForLeaderEpochRequest)
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch = p.Partition, p.LeaderEpoch
				c.SleepControl(func() {
					rp.EndOffset = answer(t.Topic, p.Partition, c.PartitionInfo(t.Topic, p.Partition).HighWatermark)
				})
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return asked
}

func wholeEpoch(_ string, _ int32, end int64) int64 { return end }

// reading is a fetcher and what came of it.
type reading struct {
	t      *testing.T
	f      *fetch.Fetcher
	parts  map[int32]*fetch.Partition
	values map[int32][]int
	next   map[int32]int64
	high   map[int32]int64
	asOf   map[int32]time.Time
	errs   map[int32]error
	err    error
	log    *testlog.Buffer
}

func (c *cluster) read(cfg fetch.Config, next map[int32]int64) *reading {
	c.t.Helper()
	return c.readWith(cfg, next)
}

func (c *cluster) readWith(cfg fetch.Config, next map[int32]int64, opts ...kgo.Opt) *reading {
	c.t.Helper()
	return c.readFrom(-1, cfg, next, opts...)
}

// readFrom reads from offsets before which a leader of the given epoch has written.
func (c *cluster) readFrom(epoch int32, cfg fetch.Config, next map[int32]int64, opts ...kgo.Opt) *reading {
	c.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...))...)
	require.NoError(c.t, err)
	log := &testlog.Buffer{}
	cfg.Client, cfg.Deadline, cfg.Now, cfg.Logger = cl, 10*time.Second, time.Now, slog.New(slog.NewTextHandler(log, nil))
	if cfg.Memory == 0 {
		cfg.Memory, cfg.Total, cfg.Partition = 32<<20, 16<<20, 1<<20
	}
	r := &reading{
		t: c.t, f: fetch.New(cfg), log: log, parts: map[int32]*fetch.Partition{}, values: map[int32][]int{}, next: map[int32]int64{},
		high: map[int32]int64{}, asOf: map[int32]time.Time{}, errs: map[int32]error{},
	}
	c.t.Cleanup(func() {
		r.f.Close()
		cl.Close()
	})
	id := c.TopicInfo("t").TopicID
	for p, at := range next {
		r.parts[p] = r.f.Add("t", id, p, at, epoch)
		r.next[p] = at
	}
	return r
}

// step takes an answer, at most wait long after.
func (r *reading) step(wait time.Duration) *fetch.Answer {
	r.t.Helper()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		if a := r.f.Take(); a != nil {
			r.take(a)
			return a
		}
		select {
		case <-r.f.Ready():
		case <-timer.C:
			return nil
		}
	}
}

func (r *reading) take(a *fetch.Answer) {
	r.t.Helper()
	if a.Err != nil {
		r.err = a.Err
	}
	for _, part := range a.Parts {
		p := part.Partition.Index()
		require.Equal(r.t, "t", part.Partition.Topic())
		for i := range part.Batches {
			b := &part.Batches[i]
			_, err := b.Open(r.f.Decompressor())
			require.NoError(r.t, err)
			for rec := (fetch.Record{}); b.Next(&rec); {
				if rec.Offset < r.next[p] {
					continue
				}
				n, err := strconv.Atoi(string(rec.Value))
				require.NoError(r.t, err)
				r.values[p] = append(r.values[p], n)
				r.next[p] = rec.Offset + 1
			}
			require.NoError(r.t, b.Err())
			r.next[p] = b.Last + 1
		}
		require.GreaterOrEqual(r.t, part.Next, r.next[p])
		r.next[p] = part.Next
		if part.High >= 0 {
			r.high[p], r.asOf[p] = part.High, part.AsOf
		}
		if part.Err != nil {
			require.NoError(r.t, r.errs[p], "one error until it is moved")
			r.errs[p] = part.Err
		}
	}
}

// until takes answers and gives them back until cond holds.
func (r *reading) until(cond func() bool) {
	r.t.Helper()
	for begin := time.Now(); !cond(); {
		require.Less(r.t, time.Since(begin), 30*time.Second, "%v %v %v", r.values, r.errs, r.err)
		if a := r.step(50 * time.Millisecond); a != nil {
			r.f.Release(a)
		}
	}
}

func (r *reading) untilValues(partition int32, n int) {
	r.t.Helper()
	r.until(func() bool { return len(r.values[partition]) >= n })
	require.Equal(r.t, numbers(1, n), r.values[partition])
}

func numbers(first, last int) []int {
	var out []int
	for n := first; n <= last; n++ {
		out = append(out, n)
	}
	return out
}

// TestLeadersMoveWhileReading: three brokers, partitions that change hands while they are written and read, nothing twice and nothing left out.
func TestLeadersMoveWhileReading(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 6)
	c.epochs(wholeEpoch)
	at := map[int32]int64{}
	for p := range int32(6) {
		at[p] = 0
	}
	r := c.read(fetch.Config{}, at)
	for round := range 5 {
		for p := range int32(6) {
			c.write(p, round*10+1, round*10+10)
		}
		require.NoError(t, c.MoveTopicPartition("t", int32(round%6), int32((round+1)%3)))
		r.untilValues(int32(round%6), round*10+10)
	}
	for p := range int32(6) {
		r.untilValues(p, 50)
	}
	require.Empty(t, r.errs)
	require.NoError(t, r.err)
}

// TestABrokerThatIsGoneIsWaitedFor: as long as its partitions have no other leader. Metadata does not list it then.
func TestABrokerThatIsGoneIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 2)
	require.NoError(t, c.MoveTopicPartition("t", 0, 0))
	require.NoError(t, c.MoveTopicPartition("t", 1, 1))
	c.epochs(wholeEpoch)
	c.write(1, 1, 5)
	r := c.read(fetch.Config{}, map[int32]int64{0: 0, 1: 0})
	r.untilValues(1, 5)

	id := c.TopicInfo("t").TopicID
	host, port, err := net.SplitHostPort(c.ListenAddrs()[0])
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	var gone atomic.Bool
	gone.Store(true)
	var asked atomic.Int32
	c.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if !gone.Load() {
			return nil, nil, false
		}
		asked.Add(1)
		resp := r.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = 0, host, int32(number)
		resp.Brokers = append(resp.Brokers, b)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID = kmsg.StringPtr("t"), id
		for p, leader := range []int32{0, -1} {
			rp := kmsg.NewMetadataResponseTopicPartition()
			rp.Partition, rp.Leader, rp.LeaderEpoch, rp.Replicas = int32(p), leader, 1, []int32{leader}
			if leader < 0 {
				rp.ErrorCode = kerr.LeaderNotAvailable.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	require.NoError(t, c.RemoveNode(1))
	since, tries := time.Now(), asked.Load()
	r.until(func() bool { return asked.Load() > tries+fetch.Patience && time.Since(since) > 9*time.Second }) // longer than other errors are left alone
	require.NoError(t, r.err)
	require.Empty(t, r.errs)
	gone.Store(false)
	c.write(1, 6, 9)
	r.untilValues(1, 9)
}

// requests collects fetch requests, whose answers a test may make; nil leaves them to the cluster.
type requests struct {
	mu     sync.Mutex
	seen   []*kmsg.FetchRequest
	answer func(n int, req *kmsg.FetchRequest) *kmsg.FetchResponse
}

func (c *cluster) control(answer func(n int, req *kmsg.FetchRequest) *kmsg.FetchResponse) *requests {
	rs := &requests{answer: answer}
	c.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		rs.mu.Lock()
		defer rs.mu.Unlock()
		req := r.(*kmsg.FetchRequest)
		seen := *req // the cluster goes on to change what it holds
		seen.Topics = slices.Clone(req.Topics)
		rs.seen = append(rs.seen, &seen)
		if rs.answer == nil {
			return nil, nil, false
		}
		resp := rs.answer(len(rs.seen), req)
		return resp, nil, resp != nil
	})
	return rs
}

func (rs *requests) all() []*kmsg.FetchRequest {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.seen
}

// about returns how many partitions a request names.
func about(req *kmsg.FetchRequest) (n int) {
	for _, t := range req.Topics {
		n += len(t.Partitions)
	}
	return n
}

// TestRequestsOfASessionNameWhatHasChanged, and everything again when the broker has lost the session, or has none.
func TestRequestsOfASessionNameWhatHasChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 4)
	var spoil atomic.Pointer[kerr.Error]
	rs := c.control(func(_ int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		code := spoil.Swap(nil)
		if code == nil {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = code.Code
		return resp
	})
	for p := range int32(4) {
		c.write(p, 1, 1)
	}
	r := c.read(fetch.Config{}, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0})
	written := 1
	idle := func() {
		t.Helper()
		r.until(func() bool {
			seen := rs.all()
			if len(seen) == 0 {
				return false
			}
			last := seen[len(seen)-1]
			return len(r.values[3]) == written && last.SessionEpoch > 1 && about(last) == 0
		})
	}
	idle()
	require.Equal(t, 4, about(rs.all()[0]))
	before := r.asOf[2]
	r.until(func() bool { return r.asOf[2].After(before) })
	require.EqualValues(t, 1, r.high[2], "what an answer leaves out has not changed")
	for _, code := range []*kerr.Error{kerr.FetchSessionIDNotFound, kerr.InvalidFetchSessionEpoch, kerr.FetchSessionTopicIDError} {
		n := len(rs.all())
		spoil.Store(code)
		written++
		c.write(3, written, written)
		r.untilValues(3, written)
		r.until(func() bool {
			for _, req := range rs.all()[n:] {
				if req.SessionEpoch == 0 && about(req) == 4 {
					return true
				}
			}
			return false
		})
		idle()
	}
	for p := range int32(3) {
		require.Equal(t, []int{1}, r.values[p])
	}
	r.f.Close()
	seen := rs.all()
	require.EqualValues(t, -1, seen[len(seen)-1].SessionEpoch, "the broker is told that it may forget the session")
	require.NotZero(t, seen[len(seen)-1].SessionID)
}

func TestABrokerWithoutRoomForSessionsIsReadWithoutOne(t *testing.T) {
	c := newCluster(t, 1, 2)
	rs := c.control(func(_ int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if req.SessionEpoch < 0 {
			return nil
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.FetchSessionIDNotFound.Code
		return resp
	})
	c.write(0, 1, 3)
	r := c.read(fetch.Config{}, map[int32]int64{0: 0, 1: 0})
	r.untilValues(0, 3)
	c.write(1, 1, 3)
	r.untilValues(1, 3)
	for _, req := range rs.all()[1:] {
		require.Equal(t, 2, about(req))
	}
}

// TestAThrottledAnswerTellsNothing: a broker that holds a client back for a quota answers with nothing, whatever there is.
func TestAThrottledAnswerTellsNothing(t *testing.T) {
	c := newCluster(t, 1, 1)
	var throttled atomic.Bool
	throttled.Store(true)
	var times atomic.Int32
	rs := c.control(func(_ int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if !throttled.Load() {
			return nil
		}
		times.Add(1)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ThrottleMillis = 20
		if req.SessionEpoch > 0 {
			resp.SessionID = req.SessionID
		}
		return resp
	})
	c.write(0, 1, 3)
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	held := func() {
		t.Helper()
		throttled.Store(true)
		n := times.Load()
		r.until(func() bool { return times.Load() > n+3 })
	}
	r.until(func() bool { return times.Load() > fetch.Patience })
	require.Zero(t, r.asOf[0])
	require.Equal(t, 1, strings.Count(r.log.String(), "because of a quota"))
	throttled.Store(false)
	r.untilValues(0, 3)
	r.until(func() bool { all := rs.all(); return all[len(all)-1].SessionEpoch > 1 })
	held() // the request that is under way at this moment sees what is written before its answer, and is not throttled
	before, known := time.Now(), r.high[0]
	c.write(0, 4, 5)
	held()
	require.False(t, r.high[0] == known && r.asOf[0].After(before), "of nothing that was written later")
	silent, _ := r.f.Silent(before)
	require.Len(t, silent, 1)
	throttled.Store(false)
	r.untilValues(0, 5)
}

// TestMemoryIsBounded: while answers are not given back, no more is asked for than there is room, and then it goes on.
func TestMemoryIsBounded(t *testing.T) {
	c := newCluster(t, 2, 4)
	value := make([]byte, 10_000)
	for n := range 800 {
		c.cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: int32(n % 4), Value: append(fmt.Appendf(nil, "%d", n/4+1), value...)}, nil)
	}
	require.NoError(t, c.cl.Flush(t.Context()))
	const memory = 600 << 10
	r := c.read(fetch.Config{Memory: memory, Total: 16 << 20, Partition: 64 << 10}, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0})
	read := func(a *fetch.Answer) (bytes int) {
		for _, part := range a.Parts {
			for i := range part.Batches {
				for rec := (fetch.Record{}); part.Batches[i].Next(&rec); {
					bytes += len(rec.Value)
				}
			}
		}
		return bytes
	}
	take := func(wait time.Duration) *fetch.Answer {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		for {
			if a := r.f.Take(); a != nil {
				return a
			}
			select {
			case <-r.f.Ready():
			case <-timer.C:
				return nil
			}
		}
	}
	var kept []*fetch.Answer
	total := 0
	for a := take(5 * time.Second); a != nil; a = take(time.Second) {
		total += read(a)
		kept = append(kept, a)
	}
	require.Greater(t, total, memory/4)
	require.Less(t, total, memory+64<<10, "a batch of the client's may be larger than what is left")
	for total < 800*10_000 {
		for _, a := range kept {
			r.f.Release(a)
		}
		a := take(5 * time.Second)
		require.NotNil(t, a, "%d bytes were read", total)
		total += read(a)
		kept = []*fetch.Answer{a}
	}
}

// answering makes an answer about partition 0 of the request.
func answering(c *cluster, req *kmsg.FetchRequest, fill func(rp *kmsg.FetchResponseTopicPartition)) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = "t", c.TopicInfo("t").TopicID
	rp := kmsg.NewFetchResponseTopicPartition()
	fill(&rp)
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// raw returns what a broker has of partition 0.
func (c *cluster) raw() []byte {
	c.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = 1<<20, 1, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = "t", c.TopicInfo("t").TopicID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 1 << 20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(c.t.Context(), c.cl)
	require.NoError(c.t, err)
	return resp.Topics[0].Partitions[0].RecordBatches
}

// TestDamagedAnswersAreAskedForAgain, and told when they stay so.
func TestDamagedAnswersAreAskedForAgain(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.write(0, 1, 3)
	good := c.raw()
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)-2] ^= 1
	const times = 3
	c.control(func(n int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		if n > times {
			return nil
		}
		return answering(c, req, func(rp *kmsg.FetchResponseTopicPartition) { rp.RecordBatches = damaged })
	})
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	r.untilValues(0, 3)
	require.Empty(t, r.errs)
}

// TestBrokenAnswersAreTold: with the coordinates, after what comes before the trouble.
func TestBrokenAnswersAreTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(good []byte) []byte
		want  error
		text  string
	}{
		"damaged":    {func(b []byte) []byte { b[len(b)-2] ^= 1; return b }, fetch.ErrCorrupt, "offset 3"},
		"old":        {func(b []byte) []byte { b[len(b)/2+16] = 0; return b }, fetch.ErrFormat, "offset 3"},
		"never ends": {func(b []byte) []byte { return b[:len(b)-1] }, fetch.ErrCorrupt, "no whole batch"},
		"the past":   {func(b []byte) []byte { return b[:len(b)/2] }, fetch.ErrCorrupt, "before the wanted offset"},
		"malformed": {func(b []byte) []byte {
			b = append([]byte(nil), b...)
			binary.BigEndian.PutUint32(b[len(b)/2+57:], 1<<31)
			fetch.Sign(b[len(b)/2:])
			return b
		}, fetch.ErrMalformed, "offset 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1, 1)
			c.write(0, 1, 3)
			half := len(c.raw())
			c.write(0, 4, 6)
			bad := c.raw()
			require.Len(t, bad, 2*half)
			bad = test.spoil(bad)
			c.control(func(n int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
				return answering(c, req, func(rp *kmsg.FetchResponseTopicPartition) {
					if rp.RecordBatches = bad; n > 1 && len(bad) > half { // from the wanted offset on
						rp.RecordBatches = bad[half:]
					}
				})
			})
			r := c.read(fetch.Config{}, map[int32]int64{0: 0})
			r.until(func() bool { return r.errs[0] != nil })
			require.ErrorIs(t, r.errs[0], test.want)
			require.ErrorContains(t, r.errs[0], test.text)
			require.Equal(t, numbers(1, 3), r.values[0], "what comes before is good")
		})
	}
}

// TestErrorsOfAPartition: what a broker answers about it, how often, and what is told of it.
func TestErrorsOfAPartition(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code  *kerr.Error
		times int
		told  bool
	}{
		"a leader that hears late":           {kerr.UnknownLeaderEpoch, 3, false},
		"a leader that is not one":           {kerr.NotLeaderForPartition, 3, false},
		"a new epoch":                        {kerr.FencedLeaderEpoch, 3, false},
		"a disk":                             {kerr.KafkaStorageError, 3, false},
		"a topic unknown to a new broker":    {kerr.UnknownTopicID, 3, false},
		"a topic whose name is another's":    {kerr.InconsistentTopicID, 3, false},
		"a broker that reads damaged things": {kerr.CorruptMessage, 3, false},
		"a topic that is gone":               {kerr.UnknownTopicID, 1000, true},
		"a topic that was made again":        {kerr.InconsistentTopicID, 1000, true},
		"damaged on disk":                    {kerr.CorruptMessage, 1000, true},
		"no right":                           {kerr.TopicAuthorizationFailed, 1000, true},
		"no such offset":                     {kerr.OffsetOutOfRange, 1000, true},
		"no such compression":                {kerr.UnsupportedCompressionType, 1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 1, 1)
			c.write(0, 1, 3)
			rs := c.control(func(n int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
				if n > test.times {
					return nil
				}
				return answering(c, req, func(rp *kmsg.FetchResponseTopicPartition) { rp.ErrorCode = test.code.Code })
			})
			r := c.read(fetch.Config{}, map[int32]int64{0: 0})
			if !test.told {
				r.untilValues(0, 3)
				require.Empty(t, r.errs)
				require.NoError(t, r.err)
				return
			}
			r.until(func() bool { return r.errs[0] != nil })
			require.ErrorIs(t, r.errs[0], test.code)
			rs.mu.Lock()
			n := len(rs.seen)
			rs.answer = nil
			rs.mu.Unlock()
			require.Nil(t, r.step(300*time.Millisecond))
			require.Len(t, rs.all(), n, "nothing more is asked for")
			delete(r.errs, 0)
			r.next[0] = 1
			r.f.Move(r.parts[0], 1)
			r.until(func() bool { return len(r.values[0]) == 2 })
			require.Equal(t, numbers(2, 3), r.values[0])
		})
	}
}

// TestEndsAreOfTheTimeOfTheQuestion: an answer that takes long says nothing of what happened meanwhile.
func TestEndsAreOfTheTimeOfTheQuestion(t *testing.T) {
	c := newCluster(t, 1, 1)
	var sent atomic.Pointer[time.Time]
	rs := c.control(func(int, *kmsg.FetchRequest) *kmsg.FetchResponse {
		now := time.Now()
		sent.Store(&now)
		return nil
	})
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	for range 4 {
		before := r.asOf[0]
		r.until(func() bool { return r.asOf[0].After(before) })
		arrived := *sent.Load()
		rs.mu.Lock()
		n := len(rs.seen)
		rs.mu.Unlock()
		if n > 1 { // the next request may be there already
			require.False(t, r.asOf[0].After(arrived))
		}
		require.EqualValues(t, 0, r.high[0])
	}
	all := rs.all()
	require.GreaterOrEqual(t, all[len(all)-1].MaxWaitMillis, int32(500))
}

// TestARefusalEndsReading, since waiting mends it for nobody.
func TestARefusalEndsReading(t *testing.T) {
	c := newCluster(t, 1, 1)
	c.control(func(_ int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	})
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	r.until(func() bool { return r.err != nil })
	require.ErrorIs(t, r.err, operator.ErrRefused)
}

// TestAnswersThatStayStrangeAreTold: what is neither the network nor a broker's trouble of the moment.
func TestAnswersThatStayStrangeAreTold(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 1)
	c.control(func(_ int, req *kmsg.FetchRequest) *kmsg.FetchResponse {
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	})
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	r.until(func() bool { return r.err != nil })
	require.ErrorIs(t, r.err, kerr.InvalidRequest)
}

func TestSilentPartitions(t *testing.T) {
	c := newCluster(t, 1, 2)
	r := c.read(fetch.Config{}, map[int32]int64{0: 0, 1: 0})
	silent, _ := r.f.Silent(time.Now())
	require.Len(t, silent, 2)
	r.until(func() bool { return !r.asOf[0].IsZero() && !r.asOf[1].IsZero() })
	silent, earliest := r.f.Silent(time.Now().Add(-time.Minute))
	require.Empty(t, silent)
	require.WithinDuration(t, time.Now(), earliest, time.Minute)
	silent, _ = r.f.Silent(time.Now().Add(time.Minute))
	require.Len(t, silent, 2)
}

// TestCloseEndsARequestThatWaits.
func TestCloseEndsARequestThatWaits(t *testing.T) {
	c := newCluster(t, 1, 1)
	rs := c.control(nil)
	r := c.read(fetch.Config{}, map[int32]int64{0: 0})
	r.until(func() bool { return len(rs.all()) > 3 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.f.Close()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatal("it goes on")
	}
}
