package fetch

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// content is what an answer holds of one partition.
type content struct {
	batches []Batch
	// next is the offset after all batches, also those that hold nothing for a reader.
	next int64
	// epoch is the leader's epoch of the last batch, or -1 where there was none.
	epoch int32
	// bytes is how much memory the batches take until they are opened.
	bytes int
}

// take takes what a broker sent of a partition apart: it checks each batch, drops what aborted transactions wrote, control batches and what lies
// before the wanted offset. With an error, the content is what comes before it.
func take(rp *kmsg.FetchResponseTopicPartition, wanted int64, d kgo.Decompressor) (content, error) {
	c := content{next: wanted, epoch: -1}
	aborts := newAborts(rp.AbortedTransactions)
	for in := rp.RecordBatches; ; {
		frame, rest, err := cut(in)
		if err != nil || frame == nil {
			return c, err
		}
		in = rest
		h, b, err := read(frame)
		if err != nil {
			return c, err
		}
		dropped, err := aborts.drop(h, &b, d)
		if err != nil {
			return c, err
		}
		if h.last < c.next {
			continue
		}
		c.next, c.epoch = h.last+1, h.leaderEpoch
		if !dropped && b.left > 0 {
			c.batches = append(c.batches, b)
			c.bytes += len(frame)
		}
	}
}

// aborts finds what aborted transactions wrote: a broker tells the producer and first offset of each, and an abort marker ends it.
type aborts struct {
	coming []kmsg.FetchResponseTopicPartitionAbortedTransaction // by first offset
	open   []int64                                              // producers
}

func newAborts(told []kmsg.FetchResponseTopicPartitionAbortedTransaction) aborts {
	coming := slices.Clone(told)
	slices.SortFunc(coming, func(a, b kmsg.FetchResponseTopicPartitionAbortedTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	return aborts{coming: coming}
}

// drop reports whether a batch holds nothing for a reader. Batches come in order.
func (a *aborts) drop(h header, b *Batch, d kgo.Decompressor) (bool, error) {
	for len(a.coming) > 0 && a.coming[0].FirstOffset <= h.last {
		if p := a.coming[0].ProducerID; !slices.Contains(a.open, p) {
			a.open = append(a.open, p)
		}
		a.coming = a.coming[1:]
	}
	switch {
	case h.attributes&control != 0:
		if aborted, err := abortMarker(*b, d); err != nil {
			return false, err
		} else if aborted {
			a.open = slices.DeleteFunc(a.open, func(p int64) bool { return p == h.producer })
		}
		return true, nil
	case h.attributes&transactional != 0:
		return slices.Contains(a.open, h.producer), nil
	}
	return false, nil
}

// abortMarker reports whether a control batch marks the abort of a transaction. Its first record's key is a version and a type.
func abortMarker(b Batch, d kgo.Decompressor) (bool, error) {
	if b.left == 0 { // its record was removed by compaction
		return false, nil
	}
	if _, err := b.Open(d); err != nil {
		return false, err
	}
	var r Record
	if !b.Next(&r) {
		return false, b.Err()
	}
	if len(r.Key) < 4 {
		return false, fmt.Errorf("%w at offset %d: a control record without a type", ErrMalformed, b.base)
	}
	return r.Key[2] == 0 && r.Key[3] == 0, nil
}
