package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/codec"
	"github.com/weir-stream/weir/internal/keygroup"
	"github.com/weir-stream/weir/internal/localcluster"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/test/harness"
)

// awkward returns records whose bytes are easily mangled: null and empty, text and binary, headers of every kind.
func awkward(topic string) []*kgo.Record {
	keys := [][]byte{nil, {}, []byte("ключ-ö-日本"), {0x00, 0xff, 0x80}, bytes.Repeat([]byte("k"), 1024)}
	values := [][]byte{nil, {}, {0xff, 0x00, 0xfe}, []byte(`{"a":9007199254740993,"b":-9223372036854775808}`)}
	headers := [][]kgo.RecordHeader{
		nil,
		{{Key: "same", Value: []byte("1")}, {Key: "same", Value: []byte("2")}},
		{{Key: "null", Value: nil}, {Key: "empty", Value: []byte{}}},
	}
	many := make([]kgo.RecordHeader, 100)
	for i := range many {
		many[i] = kgo.RecordHeader{Key: fmt.Sprintf("h%02d", 99-i), Value: []byte{byte(i)}}
	}
	headers = append(headers, many)
	var out []*kgo.Record
	for _, k := range keys {
		for _, v := range values {
			for _, h := range headers {
				at := time.UnixMilli(1_700_000_000_000 + int64(len(out)))
				out = append(out, &kgo.Record{Topic: topic, Key: k, Value: v, Headers: h, Timestamp: at})
			}
		}
	}
	return out
}

func TestBytesComeOutAsTheyWentIn(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	for _, client := range []string{"native", "confluent"} {
		t.Run(client, func(t *testing.T) {
			in, out := c.Topic(1, nil), c.Topic(1, nil)
			args := []string{"--shape", "pass", "--in", in, "--out", out, "--client", client}
			want := awkward(in)
			c.Produce(want...)
			id := c.Submit(nil, args...)
			compare(t, want, c.AwaitCommitted(out, len(want), 30*time.Second))

			// The same after a savepoint and a restore.
			savepoint := strings.TrimSpace(c.MustWeir("stop", id, "--savepoint", "file://"+c.Dir+"/sp-"+client))
			c.Produce(awkward(in)...)
			id = c.Submit([]string{"--from", savepoint}, args...)
			got := c.AwaitCommitted(out, 2*len(want), 30*time.Second)
			compare(t, append(want, want...), got)
			c.MustWeir("cancel", id)
		})
	}
}

func compare(t *testing.T, want, got []*kgo.Record) {
	t.Helper()
	require.Len(t, got, len(want))
	opts := cmp.Options{
		cmpopts.IgnoreFields(kgo.Record{}, "Topic", "Offset", "Partition", "Attrs", "ProducerEpoch", "ProducerID", "LeaderEpoch", "Context"),
		cmpopts.IgnoreUnexported(kgo.Record{}),
		cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
	}
	for i := range want {
		w := *want[i]
		if w.Headers == nil {
			got[i].Headers = emptyToNil(got[i].Headers)
		}
		if d := cmp.Diff(&w, got[i], opts); d != "" {
			t.Fatalf("record %d (-in +out):\n%s", i, d)
		}
	}
}

func emptyToNil(h []kgo.RecordHeader) []kgo.RecordHeader {
	if len(h) == 0 {
		return nil
	}
	return h
}

func TestTombstoneDeletesTheStateOfItsKey(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 2})
	in, out := c.Topic(1, nil), c.Topic(1, nil)
	args := []string{"--shape", "count", "--in", in, "--out", out}
	put := func(value []byte) { c.Produce(&kgo.Record{Topic: in, Key: []byte("k"), Value: value}) }
	put([]byte("a"))
	put([]byte("b"))
	put(nil)
	id := c.Submit([]string{"-p", "2"}, args...)
	got := c.AwaitCommitted(out, 3, 30*time.Second)
	require.Equal(t, []uint64{1, 2}, counts(got[:2]))
	require.Nil(t, got[2].Value)
	savepoint := strings.TrimSpace(c.MustWeir("stop", id, "--savepoint", "file://"+c.Dir+"/sp"))
	put([]byte("c"))
	id = c.Submit([]string{"-p", "1", "--from", savepoint}, args...)
	got = c.AwaitCommitted(out, 4, 30*time.Second)
	require.Equal(t, []uint64{1}, counts(got[3:]), "the count begins anew after the tombstone, and after the restore")
	c.MustWeir("cancel", id)
}

func counts(records []*kgo.Record) []uint64 {
	var out []uint64
	for _, r := range records {
		out = append(out, binary.BigEndian.Uint64(r.Value))
	}
	return out
}

// State and records beyond gRPC's default message size of 4 MiB.
func TestLargeStateAndLargeRecords(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 2, Slots: 1})

	t.Run("300 000 keys in one subtask, restored with another parallelism", func(t *testing.T) {
		in, out := c.Topic(1, nil), c.Topic(1, nil)
		args := []string{"--shape", "count", "--in", in, "--out", out}
		const keys = 300_000
		feed := func() {
			batch := make([]*kgo.Record, 0, keys)
			for k := range keys {
				batch = append(batch, &kgo.Record{Topic: in, Key: fmt.Appendf(nil, "%064d", k), Value: []byte("v")})
			}
			c.Produce(batch...)
		}
		feed()
		id := c.Submit([]string{"-p", "1"}, args...)
		c.AwaitCommitted(out, keys, 90*time.Second)
		_, tm, err := c.WorkerOf()
		require.NoError(t, err)
		require.NoError(t, tm.Kill())
		require.NoError(t, tm.Start())
		c.WaitState(id, "RUNNING", 30*time.Second)
		savepoint := strings.TrimSpace(c.MustWeir("stop", id, "--savepoint", "file://"+c.Dir+"/sp"))
		feed()
		id = c.Submit([]string{"-p", "2", "--from", savepoint}, args...)
		twos := 0
		for _, n := range counts(c.AwaitCommitted(out, 2*keys, 90*time.Second)) {
			if n == 2 {
				twos++
			}
		}
		require.Equal(t, keys, twos, "each key's second count")
		c.MustWeir("cancel", id)
	})

	t.Run("records around and above 4 MiB through a keyed exchange", func(t *testing.T) {
		in, out := c.Topic(1, huge), c.Topic(1, huge)
		want := []*kgo.Record{random(t, in, "small", 39<<20/10), random(t, in, "medium", 41<<20/10), random(t, in, "large", 16<<20)}
		produceHuge(t, c, want...)
		id := c.Submit([]string{"-p", "2"}, "--shape", "keyed", "--in", in, "--out", out)
		requireValues(t, want, c.AwaitCommitted(out, 3, 60*time.Second))
		c.MustWeir("cancel", id)
	})

	t.Run("records around and above 4 MiB in the state of a job that is rescaled", func(t *testing.T) {
		in, out := c.Topic(1, huge), c.Topic(1, huge)
		hoarded := []*kgo.Record{random(t, in, "small", 39<<20/10), random(t, in, "medium", 41<<20/10), random(t, in, "large", 16<<20)}
		produceHuge(t, c, hoarded...)
		c.Produce(&kgo.Record{Topic: in, Key: []byte("large"), Value: []byte("all hoarded")})
		id := c.Submit([]string{"-p", "1"}, "--shape", "hoard", "--in", in, "--out", out)
		c.AwaitCommitted(out, 1, 60*time.Second)
		for i, n := range []string{"2", "1"} {
			c.MustWeir("rescale", id, n)
			// What is shorter than what the state holds comes out.
			var want []*kgo.Record
			for _, r := range hoarded {
				want = append(want, random(t, in, string(r.Key), len(r.Value)-1))
			}
			produceHuge(t, c, want...)
			requireValues(t, want, c.AwaitCommitted(out, 1+3*(i+1), 60*time.Second)[1+3*i:])
		}
		require.Equal(t, "0", orZero(c.Job(id).Restarts))

		// What is larger than anything that goes from worker to worker ends the job, with the size and the limit.
		c.MustWeir("rescale", id, "2")
		keys, err := codec.ForKey[string]()
		require.NoError(t, err)
		const maxParallelism = 128
		var both []*kgo.Record // one for each subtask: which of them is not where the source reads is not known
		for subtask := range 2 {
			key := ""
			for i := 0; keygroup.Subtask(keygroup.Of(keys.Append(nil, key), maxParallelism), 2, maxParallelism) != subtask; i++ {
				key = strconv.Itoa(i)
			}
			both = append(both, random(t, in, key, operator.MaxRecordBytes))
		}
		produceHuge(t, c, both...)
		v := c.WaitState(id, "FAILED", 60*time.Second)
		require.Regexp(t, fmt.Sprintf(`too large.* it has 3355\d{4} bytes, the limit is %d`, operator.MaxRecordBytes), v.Failures[len(v.Failures)-1].Message)
		require.Len(t, v.Failures, 1)
	})
}

// huge are the settings of a topic that takes records of 36 MiB.
var huge = map[string]string{"max.message.bytes": "37748736"}

func random(t *testing.T, topic, key string, size int) *kgo.Record {
	t.Helper()
	value := make([]byte, size)
	_, err := rand.Read(value)
	require.NoError(t, err)
	return &kgo.Record{Topic: topic, Key: []byte(key), Value: value}
}

func produceHuge(t *testing.T, c *harness.Cluster, records ...*kgo.Record) {
	t.Helper()
	client, err := c.Broker.Client(kgo.ProducerBatchMaxBytes(36<<20), kgo.MaxBufferedBytes(128<<20))
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.ProduceSync(t.Context(), records...).FirstErr())
}

// requireValues compares keys and values in any order, without printing them.
func requireValues(t *testing.T, want, got []*kgo.Record) {
	t.Helper()
	require.Len(t, got, len(want))
	for _, w := range want {
		require.True(t, slices.ContainsFunc(got, func(g *kgo.Record) bool {
			return bytes.Equal(w.Key, g.Key) && bytes.Equal(w.Value, g.Value)
		}), "the record of %d bytes with key %s", len(w.Value), w.Key)
	}
}

func TestRecordThatDoesNotFit(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, localcluster.Config{JobManagers: 1, TaskManagers: 1, Slots: 1})
	feed := func(in string) {
		c.Produce(harness.Numbered(in, 1, 1, 1000)...)
		client, err := c.Broker.Client(kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.GzipCompression()))
		require.NoError(t, err)
		defer client.Close()
		big := &kgo.Record{Topic: in, Key: []byte("giant"), Value: bytes.Repeat([]byte("a"), 3<<20)}
		require.NoError(t, client.ProduceSync(t.Context(), big).FirstErr())
		c.Produce(harness.Numbered(in, 1, 1001, 2000)...)
	}
	t.Run("fail", func(t *testing.T) {
		in, out := c.Topic(1, map[string]string{"max.message.bytes": "8388608"}), c.Topic(1, nil)
		feed(in)
		id := c.Submit([]string{"--detach"}, "--shape", "pass", "--in", in, "--out", out, "--max-restarts", "1")
		v := c.WaitState(id, "FAILED", 60*time.Second)
		last := v.Failures[len(v.Failures)-1].Message
		for _, part := range []string{in + "/0 at offset 1000", out, "giant", "31458"} {
			require.Contains(t, last, part)
		}
		seen := map[string]int{}
		for _, r := range c.Committed(out) {
			seen[string(r.Value)]++
			require.Equal(t, 1, seen[string(r.Value)], "record %s", r.Value)
		}
	})
	t.Run("dead letter", func(t *testing.T) {
		in, out, dead := c.Topic(1, map[string]string{"max.message.bytes": "8388608"}), c.Topic(1, nil), c.Topic(1, nil)
		feed(in)
		id := c.Submit(nil, "--shape", "pass", "--in", in, "--out", out, "--dead-letters", dead)
		harness.RequireNumbers(t, c.AwaitCommitted(out, 2000, 60*time.Second), 1, 2000)
		require.Len(t, c.AwaitCommitted(dead, 1, 20*time.Second), 1)
		c.MustWeir("cancel", id)
	})
}
