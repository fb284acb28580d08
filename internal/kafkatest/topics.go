package kafkatest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Client returns a client that bypasses any proxy. The caller closes it.
func (b *Broker) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.Direct())}, opts...)...)
}

func (b *Broker) admin(do func(*kadm.Client) error) error {
	// Whoever waits for a change must not be told for 5 s of what was before.
	cl, err := b.Client(kgo.MetadataMinAge(10 * time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	return do(kadm.NewClient(cl))
}

// CreateTopic creates a topic; configs may be nil.
func (b *Broker) CreateTopic(ctx context.Context, name string, partitions int, configs map[string]string) error {
	values := make(map[string]*string, len(configs))
	for k, v := range configs {
		values[k] = &v
	}
	return b.admin(func(adm *kadm.Client) error {
		for deadline := time.Now().Add(15 * time.Second); ; {
			_, err := adm.CreateTopic(ctx, int32(partitions), -1, values, name)
			if err == nil {
				break
			}
			// A broker that was frozen or has just started may not be back for its controller.
			if !errors.Is(err, kerr.InvalidReplicationFactor) || ctx.Err() != nil || time.Now().After(deadline) {
				return wrap("create topic "+name, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		// The answer comes before its partitions have leaders.
		for {
			offsets, err := adm.ListEndOffsets(ctx, name)
			if err == nil {
				err = offsets.Error()
			}
			if err == nil || ctx.Err() != nil {
				return wrap("await the leaders of topic "+name, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

// DeleteTopic deletes a topic.
func (b *Broker) DeleteTopic(ctx context.Context, name string) error {
	return b.admin(func(adm *kadm.Client) error {
		_, err := adm.DeleteTopic(ctx, name)
		return wrap("delete topic "+name, err)
	})
}

// GrowTopic sets a topic's number of partitions.
func (b *Broker) GrowTopic(ctx context.Context, name string, partitions int) error {
	return b.admin(func(adm *kadm.Client) error {
		resp, err := adm.UpdatePartitions(ctx, partitions, name)
		if err == nil {
			err = resp.Error()
		}
		return wrap("grow topic "+name, err)
	})
}

// DeleteRecords deletes the records of a partition below an offset.
func (b *Broker) DeleteRecords(ctx context.Context, topic string, partition int32, before int64) error {
	return b.admin(func(adm *kadm.Client) error {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: before})
		resp, err := adm.DeleteRecords(ctx, offsets)
		if err == nil {
			err = resp.Error()
		}
		return wrap("delete records of "+topic, err)
	})
}

// Topic creates a topic with a unique name for a test.
func (b *Broker) Topic(t testing.TB, partitions int, configs map[string]string) string {
	t.Helper()
	name := "t-" + strings.ToLower(ulid.Make().String())
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.CreateTopic(ctx, name, partitions, configs); err != nil {
		t.Fatal(err)
	}
	return name
}

// Produce writes records and waits until all are stored.
func (b *Broker) Produce(ctx context.Context, records ...*kgo.Record) error {
	cl, err := b.Client(kgo.RecordPartitioner(explicitOrSticky()))
	if err != nil {
		return err
	}
	defer cl.Close()
	return wrap("produce", cl.ProduceSync(ctx, records...).FirstErr())
}

// AnyPartition as a record's partition lets the client choose one.
const AnyPartition int32 = -1

func explicitOrSticky() kgo.Partitioner {
	sticky := kgo.StickyKeyPartitioner(nil)
	return kgo.BasicConsistentPartitioner(func(topic string) func(*kgo.Record, int) int {
		next := sticky.ForTopic(topic)
		return func(r *kgo.Record, n int) int {
			if r.Partition >= 0 {
				return int(r.Partition)
			}
			return next.Partition(r, n)
		}
	})
}

// ProduceNumbers writes the numbers first to last in decimal, round robin over a topic's partitions, each partition in order.
func (b *Broker) ProduceNumbers(ctx context.Context, topic string, partitions, first, last int) error {
	records := make([]*kgo.Record, 0, last-first+1)
	for n := first; n <= last; n++ {
		records = append(records, &kgo.Record{Topic: topic, Partition: int32(n % partitions), Value: strconv.AppendInt(nil, int64(n), 10)})
	}
	return b.Produce(ctx, records...)
}

// ReadCommitted reads a topic with isolation read_committed from its start to the last stable offsets of this moment.
func (b *Broker) ReadCommitted(ctx context.Context, topic string) ([]*kgo.Record, error) {
	var starts, ends kadm.ListedOffsets
	err := b.admin(func(adm *kadm.Client) (err error) {
		if starts, err = adm.ListStartOffsets(ctx, topic); err != nil {
			return err
		}
		if ends, err = adm.ListCommittedOffsets(ctx, topic); err != nil {
			return err
		}
		return errors.Join(starts.Error(), ends.Error())
	})
	if err != nil {
		return nil, wrap("list offsets of "+topic, err)
	}
	left := map[int32]int64{}
	assign := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if s, _ := starts.Lookup(topic, o.Partition); s.Offset < o.Offset {
			left[o.Partition] = o.Offset
			assign[o.Partition] = kgo.NewOffset().At(s.Offset)
		}
	})
	if len(left) == 0 {
		return nil, nil
	}
	// Control records are kept so that the end is seen where a marker is the last thing in a partition.
	cl, err := b.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assign}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []*kgo.Record
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, wrap("read "+topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			end, ok := left[r.Partition]
			if !ok || r.Offset >= end {
				return
			}
			if !r.Attrs.IsControl() {
				out = append(out, r)
			}
			if r.Offset == end-1 {
				delete(left, r.Partition)
			}
		})
	}
	return out, nil
}

// ReadNumbers reads what [Broker.ProduceNumbers] wrote and a job passed on: number to how often it was seen.
func (b *Broker) ReadNumbers(ctx context.Context, topic string) (map[int]int, error) {
	records, err := b.ReadCommitted(ctx, topic)
	if err != nil {
		return nil, err
	}
	seen := make(map[int]int, len(records))
	for _, r := range records {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil {
			return nil, fmt.Errorf("%s/%d@%d is not a number: %w", r.Topic, r.Partition, r.Offset, err)
		}
		seen[n]++
	}
	return seen, nil
}

// CheckLedger returns an error unless seen holds each of the numbers first to last exactly once and nothing else.
func CheckLedger(seen map[int]int, first, last int) error {
	var missing, twice, foreign int
	var example int
	for n := first; n <= last; n++ {
		switch seen[n] {
		case 0:
			missing++
			example = n
		case 1:
		default:
			twice++
			example = n
		}
	}
	for n := range seen {
		if n < first || n > last {
			foreign++
			example = n
		}
	}
	if missing+twice+foreign == 0 {
		return nil
	}
	return fmt.Errorf("of the numbers %d to %d, %d are missing, %d repeated, %d foreign (for example %d)", first, last, missing, twice, foreign, example)
}

// OpenTransactions returns a description of each partition of a topic whose last stable offset is below its high watermark.
func (b *Broker) OpenTransactions(ctx context.Context, topic string) ([]string, error) {
	var open []string
	err := b.admin(func(adm *kadm.Client) error {
		// Stable offsets first: a transaction that ends in between then shows as open, and never the other way round.
		stable, err := adm.ListCommittedOffsets(ctx, topic)
		if err != nil {
			return err
		}
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		if err := errors.Join(stable.Error(), ends.Error()); err != nil {
			return err
		}
		stable.Each(func(s kadm.ListedOffset) {
			if e, _ := ends.Lookup(topic, s.Partition); e.Offset != s.Offset {
				open = append(open, fmt.Sprintf("%s/%d: last stable offset %d, high watermark %d", topic, s.Partition, s.Offset, e.Offset))
			}
		})
		return nil
	})
	return open, wrap("list offsets of "+topic, err)
}

// WaitNoOpenTransactions waits until no partition of a topic has an open transaction; at the context's end it returns which have.
func (b *Broker) WaitNoOpenTransactions(ctx context.Context, topic string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last []string
	for {
		open, err := b.OpenTransactions(ctx, topic)
		if err == nil && len(open) == 0 {
			return nil
		}
		if err == nil {
			last = open
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("open transactions: %s: %w", strings.Join(last, "; "), ctx.Err())
		case <-tick.C:
		}
	}
}

// TransactionalIDs lists the broker's transactional ids that begin with a prefix, with their states.
func (b *Broker) TransactionalIDs(ctx context.Context, prefix string) (map[string]string, error) {
	cl, err := b.Client()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	found := map[string]string{}
	for _, shard := range cl.RequestSharded(ctx, kmsg.NewPtrListTransactionsRequest()) {
		if shard.Err != nil {
			return nil, wrap("list transactions", shard.Err)
		}
		for _, s := range shard.Resp.(*kmsg.ListTransactionsResponse).TransactionStates {
			if strings.HasPrefix(s.TransactionalID, prefix) {
				found[s.TransactionalID] = s.TransactionState
			}
		}
	}
	return found, nil
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// EndOffset returns a partition's high watermark.
func (b *Broker) EndOffset(ctx context.Context, topic string, partition int32) (int64, error) {
	var end int64
	err := b.admin(func(adm *kadm.Client) error {
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		o, ok := ends.Lookup(topic, partition)
		if !ok {
			return fmt.Errorf("partition %d is unknown", partition)
		}
		end = o.Offset
		return o.Err
	})
	return end, wrap("list end offsets of "+topic, err)
}
