package kafkasource

import (
	"math/bits"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordPool lets the client use the records of a batch again once all of them are emitted. It holds the records only: the bytes that they
// point into are never used again, so that what decode and the operators behind it keep stays as it is.
type recordPool struct {
	// classes hold slices of 1<<i records, so that a slice is never more than twice as long as its batch.
	classes [maxPooledBits + 1]sync.Pool
}

// maxPooledBits bounds the slices that are kept; larger batches are left to the garbage collector.
const maxPooledBits = 17

var _ kgo.PoolRecords = (*recordPool)(nil)

// GetRecords implements kgo.PoolRecords.
func (p *recordPool) GetRecords(n int) []kgo.Record {
	class := bits.Len(uint(max(n, 1) - 1))
	if class > maxPooledBits {
		return make([]kgo.Record, 0, n)
	}
	if s, ok := p.classes[class].Get().(*[]kgo.Record); ok {
		return (*s)[:0]
	}
	return make([]kgo.Record, 0, 1<<class)
}

// PutRecords implements kgo.PoolRecords.
func (p *recordPool) PutRecords(s []kgo.Record) {
	if class := bits.Len(uint(max(cap(s), 1) - 1)); class <= maxPooledBits && cap(s) == 1<<class {
		p.classes[class].Put(&s)
	}
}
