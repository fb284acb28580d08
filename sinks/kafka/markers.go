package kafkasink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// markers reads each partition of a transaction from its last record on for the first control record that ends it. One for each
// partition is returned, in the committable's order.
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
	var out []marker
	for _, t := range p.Topics {
		for _, s := range t.Spans {
			start, _ := starts.Lookup(t.Name, s.Partition)
			end, ok := ends.Lookup(t.Name, s.Partition)
			if !ok {
				return nil, fmt.Errorf("partition %s/%d is unknown", t.Name, s.Partition)
			}
			m, err := c.marker(ctx, p.Identity, t.Name, s, start.Offset, end.Offset)
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

func (c *cluster) marker(ctx context.Context, id Identity, topic string, s span, start, end int64) (marker, error) {
	from, deleted := s.Last+1, false
	if start > from {
		from, deleted = start, true
	}
	// With v1 the epoch does not name one transaction: what follows the deleted place may be a later one's marker.
	if deleted && id.EndTxnVersion < EndTxnV2 {
		return markerDeleted, nil
	}
	if from >= end {
		return ended(deleted), nil
	}
	opts := append([]kgo.Opt{
		kgo.SeedBrokers(c.settings.brokers...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {s.Partition: kgo.NewOffset().At(from)}}),
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
	return ended(deleted), nil
}

func ended(deleted bool) marker {
	if deleted {
		return markerDeleted
	}
	return markerNone
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
