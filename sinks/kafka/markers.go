package kafkasink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// markers finds out for each partition how a transaction ended there, by the broker's index of aborted transactions; where retention has
// deleted the last record, by the first control record after it that ends the transaction. One for each partition is returned, in the
// committable's order.
func (c *cluster) markers(ctx context.Context, p *prepared) ([]marker, error) {
	names := make([]string, len(p.Topics))
	for i, t := range p.Topics {
		names[i] = t.Name
	}
	adm := kadm.NewClient(c.cl)
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(starts.Error(), ends.Error()); err != nil {
		return nil, err
	}
	topics, err := adm.ListTopics(ctx, names...)
	if err != nil {
		return nil, err
	}
	var out []marker
	for _, t := range p.Topics {
		for _, s := range t.Spans {
			start, _ := starts.Lookup(t.Name, s.Partition)
			end, ok := ends.Lookup(t.Name, s.Partition)
			if !ok {
				return nil, fmt.Errorf("partition %s/%d is unknown", t.Name, s.Partition)
			}
			where := topics[t.Name].Partitions[s.Partition]
			if where.Err != nil {
				return nil, where.Err
			}
			m, err := c.marker(ctx, p.Identity, t, s, bounds{start.Offset, end.Offset, where.Leader})
			if err != nil {
				return nil, fmt.Errorf("read %s/%d from offset %d: %w", t.Name, s.Partition, s.Last, err)
			}
			out = append(out, m)
			if m == markerCommit || m == markerAbort {
				return out, nil // one decides
			}
		}
	}
	return out, nil
}

// bounds are where a partition begins and ends, and its leader.
type bounds struct {
	start, end int64
	leader     int32
}

func (c *cluster) marker(ctx context.Context, id Identity, t preparedTopic, s span, b bounds) (marker, error) {
	switch {
	case b.end <= s.Last: // an unclean election, or a restored cluster: what was acknowledged is gone
		return markerDeleted, nil
	case b.start <= s.Last:
		f, err := c.fetch(ctx, t, s, b.leader)
		if err != nil {
			return 0, err
		}
		return judge(id, s, f), nil
	case id.EndTxnVersion < EndTxnV2:
		// The epoch does not name one transaction: what follows the deleted place may be a later one's marker.
		return markerDeleted, nil
	}
	return c.search(ctx, id, t.Name, s.Partition, max(b.start, s.Last+1), b.end)
}

// search reads a partition for the control record that ends a transaction.
func (c *cluster) search(ctx context.Context, id Identity, topic string, partition int32, from, end int64) (marker, error) {
	if from >= end {
		return markerDeleted, nil
	}
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(c.settings.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(from)}}),
		kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.KeepControlRecords(),
		// Where retention has moved on meanwhile, another place would show another transaction's marker.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	}, c.settings.options...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	for next := from; next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		found := markerNone
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if found == markerNone && r.Attrs.IsControl() && endsTransaction(id, r.ProducerID, r.ProducerEpoch) {
				found = controlType(r.Key)
			}
		})
		if found != markerNone {
			return found, nil
		}
	}
	return markerDeleted, nil
}

// endsTransaction reports whether a control record of a producer is the transaction's: EndTxn up to version 4 leaves the epoch, version
// 5, a timeout and fencing raise it by one.
func endsTransaction(id Identity, producer int64, epoch int16) bool {
	return producer == id.ProducerID && (epoch == id.ProducerEpoch || epoch == id.ProducerEpoch+1)
}

// controlType reads the key of a control record: version and type, 16 bits each.
func controlType(key []byte) marker {
	if len(key) < 4 {
		return markerNone
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return markerAbort
	case 1:
		return markerCommit
	}
	return markerNone
}
