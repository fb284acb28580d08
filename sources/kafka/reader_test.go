package kafkasource_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/internal/kafkatest"
	"github.com/weir-stream/weir/operator"
	"github.com/weir-stream/weir/sources"
	kafkasource "github.com/weir-stream/weir/sources/kafka"
)

func TestReadsOnFromACheckpoint(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 3, nil)
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 3, 1, 500))
	src := func() sources.Source[int] { return kafkasource.New(b.Addr(), topic, decodeNumber) }
	j := start[int](t, src(), place{})
	j.until(func() bool { return len(j.out.values) >= 120 })
	positions := j.checkpoint(1)
	before := len(j.out.values)
	j.untilValues(500)
	require.Equal(t, numbers(1, 500), sorted(j.out.values))
	require.Len(t, j.out.splits, 3)
	again := start[int](t, src(), place{restored: positions})
	again.untilValues(500 - before)
	require.Equal(t, numbers(1, 500), sorted(append(append([]int{}, j.out.values[:before]...), again.out.values...)))

	// With another parallelism every subtask gets all positions and reads its own partitions.
	var values []int
	splits := map[string]int{}
	for subtask := range 5 {
		part := start[int](t, src(), place{subtask: subtask, parallelism: 5, restored: positions, resumed: true})
		owned, err := part.reader.Positions()
		require.NoError(t, err)
		part.until(func() bool { return len(part.out.caughtUp) == len(owned) })
		values = append(values, part.out.values...)
		for key := range part.out.splits {
			splits[key]++
		}
		part.stop()
	}
	require.Equal(t, sorted(again.out.values), sorted(values))
	require.Len(t, splits, 3)
	for key, n := range splits {
		require.Equal(t, 1, n, key)
	}
}

// TestPositionsPassControlRecordsAndAbortedOnes: only committed records come, and the lag is zero at the end.
func TestPositionsPassControlRecordsAndAbortedOnes(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	cl, err := b.Client(kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	require.NoError(t, err)
	defer cl.Close()
	for n, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
		require.NoError(t, cl.BeginTransaction())
		require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord(strconv.Itoa(n))).FirstErr())
		require.NoError(t, cl.EndTransaction(t.Context(), end))
	}
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber), place{})
	j.until(func() bool { return len(j.out.caughtUp) == 1 && j.counters.lag.Load() == 0 })
	require.Equal(t, []int{0, 2}, j.out.values)
	positions := j.checkpoint(1)
	end, err := b.EndOffset(t.Context(), topic, 0)
	require.NoError(t, err)
	require.Equal(t, "\x02"+string(rune(end))+"\x00"+topic, string(positions[0].Value))

	// An open transaction at the end: its records may still come, so the partition is not caught up.
	require.NoError(t, cl.BeginTransaction())
	require.NoError(t, cl.ProduceSync(t.Context(), kgo.StringRecord("9")).FirstErr())
	again := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber), place{restored: positions})
	again.until(func() bool { return again.counters.lag.Load() == 1 })
	require.Empty(t, again.out.caughtUp)
	require.NoError(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
	again.until(func() bool { return len(again.out.caughtUp) == 1 })
	require.Equal(t, []int{9}, again.out.values)
}

// TestStartRules: each rule is resolved to numbers at the first start, and nothing is emitted before a checkpoint holds them.
func TestStartRules(t *testing.T) {
	b := kafkatest.Shared(t)
	at := time.UnixMilli(1_700_000_000_000)
	for name, test := range map[string]struct {
		option kafkasource.Option
		want   []int
	}{
		"earliest":  {kafkasource.StartEarliest(), numbers(1, 30)},
		"latest":    {kafkasource.StartLatest(), numbers(21, 30)},
		"timestamp": {kafkasource.StartAt(at.Add(11 * time.Second)), numbers(11, 30)},
		"group":     {kafkasource.StartCommitted("group-of-a-test"), numbers(6, 30)},
	} {
		t.Run(name, func(t *testing.T) {
			topic := b.Topic(t, 1, nil)
			write := func(first, last int) {
				for n := first; n <= last; n++ {
					require.NoError(t, b.Produce(t.Context(), &kgo.Record{Topic: topic, Value: []byte(strconv.Itoa(n)), Timestamp: at.Add(time.Duration(n) * time.Second)}))
				}
			}
			write(1, 20)
			commitOffset(t, b, "group-of-a-test", topic, 5)
			src := kafkasource.New(b.Addr(), topic, decodeNumber, test.option)
			first := start[int](t, src, place{})
			positions, err := first.reader.Positions()
			require.NoError(t, err)
			if name != "earliest" {
				write(21, 25)
				require.NoError(t, first.step(300*time.Millisecond))
				require.NoError(t, first.step(300*time.Millisecond))
				require.Empty(t, first.out.values, "nothing is emitted before the first checkpoint is complete")
				write(26, 30)
			} else {
				write(21, 30)
			}
			first.reader.CheckpointCompleted(1)
			require.Equal(t, test.want, first.untilValues(len(test.want)))
			// A restore of the first checkpoint reads the same, although the end is elsewhere by now.
			second := start[int](t, src, place{restored: positions})
			require.Equal(t, test.want, second.untilValues(len(test.want)))
		})
	}
}

func TestLatestWithoutCheckpointsEmitsAtOnce(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber, kafkasource.StartLatest()), place{noCheckpoints: true})
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 1, 1, 3))
	require.Equal(t, numbers(1, 3), j.untilValues(3))
}

func commitOffset(t *testing.T, b *kafkatest.Broker, group, topic string, at int64) {
	t.Helper()
	cl, err := b.Client()
	require.NoError(t, err)
	defer cl.Close()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, At: at, LeaderEpoch: -1})
	_, err = kadm.NewClient(cl).CommitOffsets(t.Context(), group, offsets)
	require.NoError(t, err)
}

func TestGroupOffsetsFollowCompletedCheckpoints(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 1, 1, 7))
	group := "group-" + topic
	j := start[int](t, kafkasource.New(b.Addr(), topic, decodeNumber, kafkasource.CommitTo(group)), place{})
	j.untilValues(7)
	j.checkpoint(1)
	cl, err := b.Client()
	require.NoError(t, err)
	defer cl.Close()
	require.Eventually(t, func() bool {
		offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), group)
		o, ok := offsets.Lookup(topic, 0)
		return err == nil && ok && o.At == 7
	}, 10*time.Second, 20*time.Millisecond)
}

// TestNewPartitionsAreReadFromTheirBeginning: a job that started at latest, two subtasks, two partitions that become five.
func TestNewPartitionsAreReadFromTheirBeginning(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 2, nil)
	src := kafkasource.New(b.Addr(), topic, decodeNumber, kafkasource.StartLatest(), kafkasource.Discovery(200*time.Millisecond))
	var jobs []*job[int]
	for subtask := range 2 {
		j := start[int](t, src, place{subtask: subtask, parallelism: 2})
		j.checkpoint(1)
		jobs = append(jobs, j)
	}
	require.NoError(t, b.GrowTopic(t.Context(), topic, 5))
	var records []*kgo.Record
	for n := 1; n <= 300; n++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(2 + n%3), Value: []byte(strconv.Itoa(n))})
	}
	require.NoError(t, b.Produce(t.Context(), records...))
	total := func() int { return len(jobs[0].out.values) + len(jobs[1].out.values) }
	for begin := time.Now(); total() < 300; {
		require.Less(t, time.Since(begin), 20*time.Second)
		for _, j := range jobs {
			require.NoError(t, j.step(20*time.Millisecond))
		}
	}
	require.Equal(t, numbers(1, 300), sorted(append(jobs[0].out.values, jobs[1].out.values...)))
	var positions []sources.Position
	for _, j := range jobs {
		positions = append(positions, j.checkpoint(2)...)
		j.stop()
	}
	require.Len(t, positions, 5)
	one := start[int](t, src, place{restored: positions})
	one.until(func() bool { return len(one.out.caughtUp) == 5 })
	require.Empty(t, one.out.values, "nothing is read twice with another parallelism")
	// A partition that appeared while the job was down counts from its beginning, too.
	two := start[int](t, src, place{restored: positions[:4]})
	two.untilValues(100)
	require.Len(t, two.out.values, 100)
}

// TestRecordsDeletedByRetention: the default stops and tells the numbers, the option counts the gap and goes on.
func TestRecordsDeletedByRetention(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 2, nil)
	var records []*kgo.Record
	for n := range 500 {
		records = append(records, &kgo.Record{Topic: topic, Partition: 0, Value: []byte(strconv.Itoa(n))})
	}
	require.NoError(t, b.Produce(t.Context(), records[:100]...))
	src := func(opts ...kafkasource.Option) sources.Source[int] {
		return kafkasource.New(b.Addr(), topic, decodeNumber, opts...)
	}
	j := start[int](t, src(), place{})
	j.untilValues(100)
	positions := j.checkpoint(1)
	j.stop()
	require.NoError(t, b.Produce(t.Context(), records[100:]...))
	require.NoError(t, b.DeleteRecords(t.Context(), topic, 0, 300))

	_, err := open[int](t, src(), place{restored: positions})
	for _, text := range []string{topic + "/0", "offset 100 is wanted", "first one kept is 300", "200 records", "SkipLostRecords"} {
		require.ErrorContains(t, err, text)
	}
	require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))

	skipping := start[int](t, src(kafkasource.SkipLostRecords()), place{restored: positions})
	require.Equal(t, numbers(300, 499), skipping.untilValues(200))
	require.EqualValues(t, 200, skipping.counters.lost.Load())
}

// TestRecordsDeletedWhileReading deletes records that a running source has not fetched yet.
func TestRecordsDeletedWhileReading(t *testing.T) {
	b := kafkatest.Shared(t)
	for name, skip := range map[string]bool{"stop": false, "skip": true} {
		t.Run(name, func(t *testing.T) {
			topic := b.Topic(t, 1, nil)
			value := func(n int) []byte { return append([]byte(fmt.Sprintf("%06d", n)), make([]byte, 10_000)...) }
			decode := func(r kafkasource.Record) (int, error) { return strconv.Atoi(string(r.Value[:6])) }
			cl, err := b.Client(kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(64<<10))
			require.NoError(t, err)
			defer cl.Close()
			for n := range 400 {
				cl.Produce(t.Context(), &kgo.Record{Topic: topic, Value: value(n)}, nil)
			}
			require.NoError(t, cl.Flush(t.Context()))
			opts := []kafkasource.Option{kafkasource.FetchBytes(64<<10, 64<<10)}
			if skip {
				opts = append(opts, kafkasource.SkipLostRecords())
			}
			j := start[int](t, kafkasource.New(b.Addr(), topic, decode, opts...), place{})
			j.until(func() bool { return len(j.out.values) > 0 })
			require.NoError(t, b.DeleteRecords(t.Context(), topic, 0, 350))
			if !skip {
				err := j.fail()
				require.Equal(t, operator.ClassDataLoss, operator.ClassOf(err))
				require.ErrorContains(t, err, "first one kept is 350")
				return
			}
			j.until(func() bool { return len(j.out.values) > 0 && j.out.values[len(j.out.values)-1] == 399 })
			gap := j.counters.lost.Load()
			require.Positive(t, gap)
			require.Len(t, j.out.values, int(400-gap))
			require.Equal(t, numbers(350, 399), j.out.values[len(j.out.values)-50:])
		})
	}
}

func TestRecreatedTopicIsAnError(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	require.NoError(t, b.ProduceNumbers(t.Context(), topic, 1, 1, 5))
	src := kafkasource.New(b.Addr(), topic, decodeNumber, kafkasource.Discovery(100*time.Millisecond))
	j := start[int](t, src, place{})
	j.untilValues(5)
	positions := j.checkpoint(1)
	require.NoError(t, b.DeleteTopic(t.Context(), topic))
	require.Eventually(t, func() bool { return b.CreateTopic(t.Context(), topic, 1, nil) == nil }, 20*time.Second, 20*time.Millisecond)
	err := j.fail()
	require.ErrorContains(t, err, topic)
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	_, err = open[int](t, src, place{restored: positions})
	require.ErrorContains(t, err, "deleted and created again")
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
}

func TestMalformedRecords(t *testing.T) {
	b := kafkatest.Shared(t)
	topic, dead := b.Topic(t, 1, nil), b.Topic(t, 1, nil)
	for i, v := range [][]byte{[]byte("1"), []byte("{"), {}, nil, []byte("2"), {0xff, 0xfe}, []byte("3")} {
		require.NoError(t, b.Produce(t.Context(), &kgo.Record{Topic: topic, Key: []byte{byte(i)}, Value: v, Headers: []kgo.RecordHeader{{Key: "h"}}}))
	}
	broken := errors.New("not a number")
	decode := func(r kafkasource.Record) (int, error) {
		if r.Value == nil {
			return -1, nil // a tombstone is no broken record
		}
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return 0, broken
		}
		return n, nil
	}
	want := []int{1, -1, 2, 3}

	fail := start[int](t, kafkasource.New(b.Addr(), topic, decode), place{})
	err := fail.fail()
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, topic+"/0 at offset 1")

	skip := start[int](t, kafkasource.New(b.Addr(), topic, decode, kafkasource.SkipMalformed()), place{})
	require.Equal(t, want, skip.untilValues(4))
	require.EqualValues(t, 3, skip.counters.skipped.Load())
	for _, offset := range []int{1, 2, 5} {
		require.Contains(t, skip.log.String(), fmt.Sprintf("topic=%s partition=0 offset=%d", topic, offset))
	}
	again := start[int](t, kafkasource.New(b.Addr(), topic, decode, kafkasource.SkipMalformed()), place{restored: skip.checkpoint(1)})
	again.until(func() bool { return len(again.out.caughtUp) == 1 })
	require.Zero(t, again.counters.skipped.Load(), "a skipped record moves the position")

	letters := start[int](t, kafkasource.New(b.Addr(), topic, decode, kafkasource.DeadLetterTopic(dead)), place{})
	require.Equal(t, want, letters.untilValues(4))
	letters.checkpoint(1)
	got, err := b.ReadCommitted(t.Context(), dead)
	require.NoError(t, err)
	require.Len(t, got, 3, "they are flushed before the checkpoint is acknowledged")
	require.EqualValues(t, 3, letters.counters.deadLetters.Load())
	require.Equal(t, []byte("{"), got[0].Value)
	require.Equal(t, []byte{1}, got[0].Key)
	require.Equal(t, []byte{}, got[1].Value)
	require.Equal(t, "h", got[0].Headers[0].Key)
	require.Equal(t, kgo.RecordHeader{Key: "weir-offset", Value: []byte("1")}, got[0].Headers[3])
}

func TestRecordsWithoutTimestamp(t *testing.T) {
	b := kafkatest.Shared(t)
	topic := b.Topic(t, 1, nil)
	require.NoError(t, b.Produce(t.Context(), &kgo.Record{Topic: topic, Value: []byte("1"), Timestamp: time.UnixMilli(-1)},
		&kgo.Record{Topic: topic, Value: []byte("2"), Timestamp: time.UnixMilli(0)}, &kgo.Record{Topic: topic, Value: []byte("3"), Timestamp: time.UnixMilli(1500)}))
	var zero []bool
	j := start[int](t, kafkasource.New(b.Addr(), topic, func(r kafkasource.Record) (int, error) {
		zero = append(zero, r.Timestamp.IsZero())
		return decodeNumber(r)
	}), place{})
	j.untilValues(3)
	require.Equal(t, []int64{operator.NoTimestamp, 0, 1500}, j.out.times)
	require.Equal(t, []bool{true, false, false}, zero)
}

func TestUnreachableBrokerAndMissingTopicAreNamed(t *testing.T) {
	b := kafkatest.Shared(t)
	begin := time.Now()
	_, err := open[int](t, kafkasource.New("127.0.0.1:1", "t", decodeNumber, kafkasource.Deadline(time.Second)), place{})
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, err, "refused")
	_, err = open[int](t, kafkasource.New(b.Addr(), "no-such-topic", decodeNumber), place{})
	require.ErrorContains(t, err, `topic "no-such-topic" does not exist`)
	require.Equal(t, operator.ClassFatal, operator.ClassOf(err))
	require.Less(t, time.Since(begin), 15*time.Second)
}
