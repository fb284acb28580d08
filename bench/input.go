package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-stream/weir/bench/internal/work"
	"github.com/weir-stream/weir/internal/kafkatest"
)

const (
	partitions = 2
	// perMilli is how many records of a binary input one millisecond of event time has.
	perMilli = 50
	// perWindow is how many records a window has.
	perWindow = perMilli * work.WindowMillis
	firstDay  = 1_750_000_000_000 // milliseconds, the start of a window
)

// output is what committed records of a topic come to, in whatever order: their number, and the sum of the checksums of that part of
// them that does not depend on the order in which the input's partitions were read.
type output struct {
	records  int64
	checksum uint64
}

var table = crc64.MakeTable(crc64.ECMA)

func (o *output) add(v []byte) {
	o.records++
	o.checksum += crc64.Checksum(v, table)
}

// input is a topic and the right output of each workload that reads it.
type input struct {
	topic   string
	records int
	want    map[string]output
}

// workload is one comparison.
type workload struct {
	name string
	// input is the topic it reads.
	input string
	// stable is how many bytes of a result do not depend on the order of the input's partitions; 0 means all.
	stable int
	// local adds a run of Weir in one worker process, where the usual one has one in each of two.
	local bool
	// bounded is what a second run of Weir has for state, in bytes, instead of a run of the hand-written program.
	bounded int64
	// guarantee is that of Weir's sink, by default exactly-once.
	guarantee string
}

var workloads = []workload{
	{name: "passthrough", input: "small"},
	{name: "window-count", input: "small"},
	{name: "running-count", input: "large", stable: 16},
	{name: "json-projection", input: "bids"},
	{name: "exchange", input: "small", stable: 16, local: true},
}

// boundedCount counts per key with a quarter of the memory that the counts take.
var boundedCount = workload{name: "bounded-count", input: "huge", stable: 16, bounded: 58 << 20}

// makers write the inputs: 100 000, a million and four million keys, and JSON.
var makers = map[string]func(ctx context.Context, p *producer, records int) (input, error){
	"small": func(ctx context.Context, p *producer, n int) (input, error) { return binary(ctx, p, n, 100_000) },
	"large": func(ctx context.Context, p *producer, n int) (input, error) { return binary(ctx, p, n, 1_000_000) },
	"huge":  func(ctx context.Context, p *producer, n int) (input, error) { return binary(ctx, p, n, 4_000_000) },
	"bids":  bids,
}

// fill creates the topic of an input and writes about n records to it.
func fill(ctx context.Context, b *kafkatest.Broker, name string, n int) (input, error) {
	return fillTopic(ctx, b, "bench-"+name, partitions, func(ctx context.Context, p *producer) (input, error) { return makers[name](ctx, p, n) })
}

// kept are the settings of a topic whose records have old timestamps and must stay all the same.
var kept = map[string]string{"retention.ms": "-1"}

// fillTopic creates a topic and has its records made.
func fillTopic(ctx context.Context, b *kafkatest.Broker, topic string, partitions int, maker func(context.Context, *producer) (input, error)) (input, error) {
	if err := b.CreateTopic(ctx, topic, partitions, kept); err != nil {
		return input{}, err
	}
	return write(ctx, b, topic, partitions, maker)
}

// write has records made and writes them to a topic.
func write(ctx context.Context, b *kafkatest.Broker, topic string, partitions int, maker func(context.Context, *producer) (input, error)) (input, error) {
	client, err := b.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(100_000), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		return input{}, err
	}
	defer client.Close()
	p := newProducer(client, partitions)
	in, err := maker(ctx, p)
	if err != nil {
		return input{}, err
	}
	in.topic, in.records = topic, p.n
	if err := client.Flush(ctx); err != nil {
		return input{}, err
	}
	select {
	case err := <-p.failed:
		return input{}, fmt.Errorf("fill %s: %w", topic, err)
	default:
		return in, nil
	}
}

// producer writes records to the partitions in turn.
type producer struct {
	client     *kgo.Client
	partitions int
	n          int
	failed     chan error
}

func newProducer(client *kgo.Client, partitions int) *producer {
	return &producer{client: client, partitions: partitions, failed: make(chan error, 1)}
}

func (p *producer) put(ctx context.Context, v []byte, millis uint64) {
	r := &kgo.Record{Partition: int32(p.n % p.partitions), Value: v, Timestamp: time.UnixMilli(int64(millis))}
	p.n++
	p.client.Produce(ctx, r, func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case p.failed <- err:
			default:
			}
		}
	})
}

// binary writes whole windows of records, and one record in each partition that lets the last window end.
func binary(ctx context.Context, p *producer, n int, keys uint64) (input, error) {
	windows := max(1, n/perWindow)
	rnd := rand.New(rand.NewPCG(1, keys))
	var pass, window, running, exchange output
	type total struct{ count, sum uint64 }
	totals := map[uint64]*total{}
	counts := map[uint64]uint64{}
	row := make([]byte, 0, work.RowSize)
	last := windows * perWindow
	for i := range last + partitions {
		if i > 0 && i <= last && i%perWindow == 0 {
			start := uint64(firstDay + (i/perWindow-1)*work.WindowMillis)
			for key, t := range totals {
				window.add(work.Row(row[:0], key, start, t.count, t.sum))
			}
			clear(totals)
		}
		millis := uint64(firstDay + min(i, last)/perMilli)
		v := make([]byte, work.Size)
		for j := 32; j < work.Size; j++ {
			v[j] = byte(i + j)
		}
		key := rnd.Uint64N(keys)
		work.Fill(v, key, millis, uint64(i), byte(rnd.IntN(10)))
		p.put(ctx, v, millis)
		if work.Kept(v) {
			pass.add(v)
		}
		t := totals[key]
		if t == nil {
			t = &total{}
			totals[key] = t
		}
		t.count++
		t.sum += uint64(i)
		counts[key]++
		counted := work.Row(row[:0], key, counts[key], 0, 0)[:16]
		running.add(counted)
		if counts[key]%work.Every == 0 {
			exchange.add(counted)
		}
		if err := ctx.Err(); err != nil {
			return input{}, err
		}
	}
	return input{want: map[string]output{
		"passthrough": pass, "window-count": window, "running-count": running, boundedCount.name: running, "exchange": exchange,
	}}, nil
}

func bids(ctx context.Context, p *producer, n int) (input, error) {
	rnd := rand.New(rand.NewPCG(3, 3))
	channels := []string{"Google", "Facebook", "Baidu", "Apple"}
	var want output
	for i := range n {
		channel := channels[rnd.IntN(len(channels))]
		bid := work.Bid{
			Auction: 1000 + rnd.Int64N(100_000), Bidder: 1000 + rnd.Int64N(100_000), Price: 100 + rnd.Int64N(1_000_000), Channel: channel,
			URL:      fmt.Sprintf("https://auctions.example.com/%s/item.htm?query=1&channel_id=%d", strings.ToLower(channel), rnd.IntN(100_000_000)),
			DateTime: firstDay + int64(i/perMilli), Extra: strings.Repeat(string(rune('a'+rnd.IntN(26))), 60+rnd.IntN(41)),
		}
		v, err := json.Marshal(bid)
		if err != nil {
			return input{}, err
		}
		result, err := json.Marshal(work.Project(bid))
		if err != nil {
			return input{}, err
		}
		want.add(result)
		p.put(ctx, v, uint64(bid.DateTime))
		if err := ctx.Err(); err != nil {
			return input{}, err
		}
	}
	return input{want: map[string]output{"json-projection": want}}, nil
}

// committed reads what is committed to topics.
func committed(ctx context.Context, b *kafkatest.Broker, topics []string, stable int) (output, error) {
	client, err := b.Client(kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return output{}, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topics...)
	if err != nil {
		return output{}, err
	}
	var out output
	type partition struct {
		topic  string
		number int32
	}
	left := map[partition]bool{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[partition{o.Topic, o.Partition}] = true
		}
	})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return output{}, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, _ := ends.Lookup(r.Topic, r.Partition)
			if r.Offset < end.Offset && !r.Attrs.IsControl() {
				v := r.Value
				if stable > 0 {
					v = v[:stable]
				}
				out.add(v)
			}
			if r.Offset >= end.Offset-1 {
				delete(left, partition{r.Topic, r.Partition})
			}
		})
	}
	return out, nil
}
